import { stringify } from 'node:querystring';
import { PassThrough, type Readable } from 'node:stream';
import { WebSocketHandler } from '@kubernetes/client-node/dist/web-socket-handler.js';
import { z } from 'zod';
import { inTime } from '../../../core/in-time.ts';
import { raceAbort } from '../../../core/race-abort.ts';
import { SandboxError } from '../errors.ts';
import { failure, parsedJson, type Cluster } from './cluster.ts';

/** Load balancers before an API server close connections that are silent. */
const PING_MS = 20_000;
/** A connection over which nothing came after so many pings is dead. */
const MOST_UNANSWERED = 3;
const CONNECT_MS = 30_000;

export type Channel = {
  stdout: Readable;
  stderr: Readable;
  /** Resolves when the bytes are on their way. */
  write: (data: Buffer) => Promise<void>;
  /** Resolves at the end, with the exit code of the command; null when the connection ended without one. */
  ended: Promise<number | null>;
  close: () => void;
};

type Pausable = { readonly isPaused: boolean; pause: () => void; resume: () => void };

type Target = {
  pod: string;
  container: string;
  /** Absent: the connection is to the container's own first process. */
  command?: string[];
};

const status = z.object({
  status: z.string().optional(),
  message: z.string().optional(),
  reason: z.string().optional(),
  details: z
    .object({ causes: z.array(z.object({ reason: z.string().optional(), message: z.string().optional() })).optional() })
    .optional(),
});

/**
 * Runs a command in a container, or attaches to it.
 * @throws SandboxError when the API server refuses
 */
export async function openChannel(
  { config, namespace }: Cluster,
  { pod, container, command }: Target,
): Promise<Channel> {
  const query = stringify({
    container,
    stdin: true,
    stdout: true,
    stderr: true,
    tty: false,
    ...(command && { command }),
  });
  const verb = command ? 'exec' : 'attach';
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const outputs = new Map([
    [WebSocketHandler.StdoutStream, stdout],
    [WebSocketHandler.StderrStream, stderr],
  ]);
  const { promise: ended, resolve: end } = Promise.withResolvers<number | null>();
  const finish = (exitCode: number | null): void => {
    end(exitCode);
    outputs.forEach((output) => output.end());
  };
  let connection: Pausable | null = null;
  let unanswered = 0;
  /** Pauses the connection until the output is read. Messages that have arrived already still come. */
  const slowDown = (output: PassThrough): void => {
    if (connection === null || connection.isPaused) return;
    connection.pause();
    output.once('drain', () => connection?.resume());
  };
  /** The client calls this for each message, in their order. */
  const receive = (stream: number, data: Buffer): boolean => {
    unanswered = 0;
    const output = outputs.get(stream);
    if (output && !output.writableEnded && !output.write(data)) slowDown(output);
    if (stream !== WebSocketHandler.StatusStream) return true;
    finish(exitCodeOf(data));
    return false;
  };
  // Without streams of its own the client would close those of this process.
  const streams = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough() };
  const handler = new WebSocketHandler(config, undefined, streams);
  const connecting = handler.connect(`/api/v1/namespaces/${namespace}/pods/${pod}/${verb}?${query}`, null, receive);
  const socket = await inTime(connecting, CONNECT_MS).catch((error: unknown) => {
    void connecting.then((one) => one.terminate()).catch(() => {});
    const cause = error instanceof Error ? error : new Error(messageIn(error), { cause: error });
    throw failure(cause, `create pods/${verb}`);
  });
  connection = socket;
  socket.on('pong', () => (unanswered = 0));
  const ping = setInterval(() => {
    // A paused connection reads nothing, so it gets no answers to pings.
    if (socket.isPaused) unanswered = 0;
    if (unanswered >= MOST_UNANSWERED) return socket.terminate();
    unanswered += 1;
    socket.ping();
  }, PING_MS).unref();
  socket.once('close', () => {
    clearInterval(ping);
    finish(null);
  });
  socket.on('error', () => {});
  return {
    stdout,
    stderr,
    write: (data) =>
      new Promise((resolve, refuse) =>
        socket.send(Buffer.concat([Buffer.of(WebSocketHandler.StdinStream), data]), (error) =>
          error ? refuse(failure(error, `create pods/${verb}`)) : resolve(),
        ),
      ),
    ended,
    close: () => socket.terminate(),
  };
}

/** The WebSocket client reports an event in place of an error. */
const messageIn = (error: unknown): string =>
  error !== null && typeof error === 'object' && 'message' in error ? String(error.message) : String(error);

/** Returns the exit code of a command; -1 when it could not be started. */
function exitCodeOf(data: Buffer): number {
  const parsed = status.safeParse(parsedJson(data.toString()));
  if (!parsed.success) {
    console.error(`kubernetes: exec: the API server sent no status: ${data.toString().slice(0, 200)}`);
    return -1;
  }
  const { status: word, message, reason, details } = parsed.data;
  if (word === 'Success') return 0;
  const code = details?.causes?.find((cause) => cause.reason === 'ExitCode')?.message;
  if (code !== undefined) return Number(code);
  // The runtime could not start the command.
  console.error(`kubernetes: exec: ${message ?? reason ?? 'failed'}`);
  return -1;
}

/** The time limit of a command that prints little. */
const EXECUTE_MS = 60_000;

/**
 * Runs a command to its end and returns what it printed, which is short. The exit code is null when the connection ended before the command, or
 * after a minute.
 * @throws SandboxError when the API server refuses; the signal's reason on abort
 */
export async function execute(
  cluster: Cluster,
  target: Required<Target>,
  signal: AbortSignal,
): Promise<{ exitCode: number | null; stdout: Buffer; stderr: string }> {
  const channel = await openChannel(cluster, target);
  const [stdout, stderr] = [collected(channel.stdout), collected(channel.stderr)];
  const timer = setTimeout(() => channel.close(), EXECUTE_MS);
  try {
    const exitCode = await raceAbort(channel.ended, signal);
    return { exitCode, stdout: await stdout, stderr: (await stderr).toString() };
  } finally {
    clearTimeout(timer);
    for (const each of [stdout, stderr]) each.catch(() => {});
    channel.close();
  }
}

const MOST_BYTES = 2 ** 20;

async function collected(stream: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let left = MOST_BYTES;
  for await (const chunk of stream) {
    if (!Buffer.isBuffer(chunk)) throw new SandboxError('a stream of bytes was expected');
    if (left > 0) chunks.push(chunk.subarray(0, left));
    left -= chunk.length;
  }
  return Buffer.concat(chunks);
}
