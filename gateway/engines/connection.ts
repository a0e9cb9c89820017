export type EngineRequest = { method: 'GET' | 'POST'; path: string; body?: string; signal: AbortSignal };

export type EngineReply = {
  status: number;
  contentType: string;
  /** Ends with an error when the engine cuts it. */
  body: AsyncIterable<Uint8Array>;
};

/** The way to one replica. Each runtime brings its own. */
export interface EngineConnection {
  readonly url: string;
  /** Rises whenever a connection for calls is made or lost: another process may answer from then on. */
  readonly epoch: number;
  /** Called after the epoch has risen. */
  onChange: (() => void) | null;
  /** A call. Rejects when no reply began. */
  send(request: EngineRequest): Promise<EngineReply>;
  /** A question about the replica, on a connection of its own. */
  ask(request: EngineRequest): Promise<EngineReply>;
  close(): Promise<void>;
}

export async function readText(body: AsyncIterable<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const bytes of body) text += decoder.decode(bytes, { stream: true });
  return text + decoder.decode();
}
