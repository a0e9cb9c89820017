import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Line } from './wrk.ts';
import type { ProtocolName } from '../../../store/schema.ts';

export type StreamsJob = {
  url: string;
  lines: Line[];
  /** The number of simultaneous streams. A new one begins whenever one has ended. */
  streams: number;
  tokens: number;
  direct: boolean;
  protocol: ProtocolName;
  /** The time over which the first streams begin. */
  spreadMs: number;
  /** The time before anything but faults is counted. */
  warmMs: number;
  /** The time from the start during which tokens are counted and new streams begin. Streams under way go on to their end. */
  forMs: number;
  /** The number of streams one after the other, used instead of a time. */
  rounds?: number;
};

export type Quantiles = { count: number; p50: number; p99: number; max: number };
export type StreamsResult = {
  begun: number;
  /** The number of streams that were read to their end, with every token. */
  complete: number;
  /** The number of streams that ended early or with another number of events. */
  incomplete: number;
  refused: number;
  timeouts: number;
  broken: number;
  /** The largest number of streams open at once. */
  open: number;
  tokensPerSecond: number;
  /** Milliseconds from the engine's write of a token until it was read. */
  delayMs: Quantiles;
  /** Milliseconds until the first token, without the engine's own. */
  firstMs: Quantiles;
  /** Short reasons why streams failed. */
  reasons: string[];
};

const CLIENT = fileURLToPath(new URL('streams-client.ts', import.meta.url));

/** Runs streams in a separate process that times every token. */
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
