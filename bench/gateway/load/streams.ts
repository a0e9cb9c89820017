import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { ProtocolName } from '../../../store/schema.ts';
import type { Line } from './wrk.ts';

export type StreamsJob = {
  url: string;
  lines: Line[];
  /** How many at once: each begins the next one when one has ended. */
  streams: number;
  tokens: number;
  direct: boolean;
  protocol: ProtocolName;
  /** Over how long the first ones begin. */
  spreadMs: number;
  /** What comes before is not counted, except for faults. */
  warmMs: number;
  /** Until when tokens are counted, from the start, and new streams begin; those under way go on to their end. */
  forMs: number;
  /** So many one after the other instead, however long they take. */
  rounds?: number;
};

export type Quantiles = { count: number; p50: number; p99: number; max: number };
export type StreamsResult = {
  begun: number;
  /** Read to their end, with every token. */
  complete: number;
  /** Ended too early, or with another number of events. */
  incomplete: number;
  refused: number;
  timeouts: number;
  broken: number;
  /** Most that were open at once. */
  open: number;
  tokensPerSecond: number;
  /** Milliseconds from the engine's write of a token to its reading. */
  delayMs: Quantiles;
  /** Milliseconds to the first token, less those that the engine itself took. */
  firstMs: Quantiles;
  /** Why some came to nothing, in a few words. */
  reasons: string[];
};

const CLIENT = fileURLToPath(new URL('streams-client.ts', import.meta.url));

/** Streams from a process of their own that times every token. */
export async function runStreams(job: StreamsJob, signal: AbortSignal): Promise<StreamsResult> {
  signal.throwIfAborted();
  const child = fork(CLIENT, { detached: true, execArgv: [] });
  const end = () => void child.kill('SIGKILL');
  signal.addEventListener('abort', end, { once: true });
  try {
    const result = await new Promise<StreamsResult>((resolve, reject) => {
      child.once('message', (message) => resolve(message as StreamsResult));
      child.once('error', reject);
      child.once('exit', (code, how) => reject(new Error(`the client of streams ended with ${how ?? code}`)));
      child.send(job);
    });
    if (child.exitCode === null) await new Promise((resolve) => child.once('exit', resolve));
    return result;
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    signal.removeEventListener('abort', end);
    end();
  }
}
