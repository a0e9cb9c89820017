export type EngineRequest = {
  method: 'GET' | 'POST';
  path: string;
  body?: string;
  signal: AbortSignal;
  headers?: Readonly<Record<string, string>>;
};

export type EngineReply = {
  status: number;
  contentType: string;
  /** Ends with an error when the engine cuts the reply. */
  body: AsyncIterable<Uint8Array>;
};

/** No model's reply is this long. The limit protects our memory from an engine that does not stop writing. */
export const MAX_REPLY_BYTES = 256 * 2 ** 20;

/** A connection to one replica. Each runtime has its own implementation. */
export interface EngineConnection {
  readonly url: string;
  /** Rises when a connection for calls is made or lost, because another process may answer from then on. */
  readonly epoch: number;
  /** Called after the epoch has risen. */
  onChange: (() => void) | null;
  /** Sends a call. Rejects when no reply began. */
  send(request: EngineRequest): Promise<EngineReply>;
  /** Sends a question about the replica, on a connection of its own. */
  ask(request: EngineRequest): Promise<EngineReply>;
  close(): Promise<void>;
}

/** Returns a reply that no engine sent. */
export const jsonReply = (status: number, body: unknown): EngineReply => ({
  status,
  contentType: 'application/json',
  body: new Blob([JSON.stringify(body)]).stream(),
});

export async function readText(body: AsyncIterable<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const bytes of body) text += decoder.decode(bytes, { stream: true });
  return text + decoder.decode();
}
