import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { WebSocket } from 'ws';
import { z } from 'zod';
import { INSTALLS } from '../../../cli/folders.ts';
import { freePort } from '../../../core/free-port.ts';
import { httpUrl } from '../../../core/reachable-at.ts';
import { Link } from '../../../bench/chaos/link.ts';
import { runRelayWorker, type RelayWorkerOptions } from '../../../gateway/runtimes/node/relay-worker.ts';

/** A worker in this process, which dials again soon. */
export class TestWorker {
  readonly log: string[] = [];
  /** Settles when it has ended: with the error that ended it, or null. */
  readonly ended: Promise<unknown>;
  readonly #stopping = new AbortController();

  constructor(options: Omit<RelayWorkerOptions, 'log'>) {
    const given = { backOffMs: { least: 5, most: 50 }, drainMs: 5_000, ...options };
    this.ended = runRelayWorker({ ...given, log: (line) => this.log.push(line) }, this.#stopping.signal).then(
      () => null,
      (error: unknown) => error,
    );
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.ended;
  }
}

const listed = z.object({
  workers: z.array(z.object({ worker_id: z.string(), engine: z.string(), connected: z.boolean() })),
});

/** Returns the workers that a gateway lists. */
export async function workersOf(gateway: string, adminKey: string) {
  const reply = await fetch(`${gateway}/relay/workers`, { headers: { authorization: `Bearer ${adminKey}` } });
  return listed.parse(await reply.json()).workers;
}

/** A way to a gateway or engine that can be cut and restored, and led to another one, as a load balancer does. It begins at a free port by default. */
export async function openWire(
  target: string,
  at?: { host: string; port: number },
): Promise<{ url: string; link: Link; leadTo: (target: string) => void }> {
  const { host, port } = at ?? { host: '127.0.0.1', port: await freePort('127.0.0.1') };
  const upstream = { host: '127.0.0.1', port: Number(new URL(target).port) };
  const link = await Link.open({ host, port }, upstream);
  const leadTo = (other: string) => {
    upstream.port = Number(new URL(other).port);
    link.cut();
    link.restore();
  };
  return { url: httpUrl(host, port), link, leadTo };
}

type ProcessOptions = { gateway: string; engine: string; adminKey: string; id?: string; checkpoints?: string };

/** `trialgate relay-worker` as a process of its own. */
export class RelayWorkerProcess {
  readonly #child: ChildProcess;
  readonly #exited: Promise<unknown>;
  #said = '';

  constructor({ gateway, engine, adminKey, id, checkpoints }: ProcessOptions) {
    const named = id === undefined ? [] : ['--id', id];
    const keeping = checkpoints === undefined ? [] : ['--checkpoints', checkpoints];
    const args = [INSTALLS.main, 'relay-worker', '--gateway', gateway, '--engine', engine, ...named, ...keeping];
    // The child stops when its channel closes, which happens when this process dies.
    this.#child = spawn(process.execPath, args, {
      cwd: tmpdir(),
      env: { PATH: process.env['PATH'], TRIALGATE_ADMIN_KEY: adminKey },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    const hear = (bytes: Buffer) => void (this.#said += bytes.toString());
    this.#child.stdout?.on('data', hear);
    this.#child.stderr?.on('data', hear);
    this.#exited = once(this.#child, 'close');
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  get said(): string {
    return this.#said;
  }

  /** Resolves with its exit code. */
  async ended(): Promise<number | null> {
    await this.#exited;
    return this.#child.exitCode;
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  async stop(): Promise<void> {
    this.kill('SIGKILL');
    await this.#exited;
  }
}

type VerlRequest = { type: 'completion_request'; request_id: string } & Record<string, unknown>;

/** A worker that speaks verl-recipe PR 83's frames and no others. `answer` gives the fields of each completion_response. */
export class VerlWorker {
  readonly requests: VerlRequest[] = [];
  readonly received: Record<string, unknown>[] = [];
  readonly #socket: WebSocket;

  private constructor(socket: WebSocket, answer: (request: VerlRequest) => Record<string, unknown> | null) {
    this.#socket = socket;
    socket.on('message', (data: Buffer) => {
      const frame = JSON.parse(data.toString()) as VerlRequest;
      this.received.push(frame);
      if (frame.type !== 'completion_request') return;
      this.requests.push(frame);
      const fields = answer(frame);
      if (fields) this.send({ type: 'completion_response', request_id: frame.request_id, ...fields });
    });
  }

  /** Resolves when the gateway has taken the connection. */
  static async dial(
    gateway: string,
    { id, key }: { id: string; key: string },
    answer: (request: VerlRequest) => Record<string, unknown> | null,
  ): Promise<VerlWorker> {
    const socket = new WebSocket(`${gateway.replace('http', 'ws')}/ws/worker?key=${key}`);
    const worker = new VerlWorker(socket, answer);
    await once(socket, 'open');
    const greeted = once(socket, 'message');
    worker.send({ type: 'worker_hello', worker_id: id });
    await greeted;
    return worker;
  }

  send(frame: Record<string, unknown>): void {
    this.#socket.send(JSON.stringify(frame));
  }

  async close(): Promise<void> {
    if (this.#socket.readyState === WebSocket.CLOSED) return;
    const closed = once(this.#socket, 'close');
    this.#socket.close();
    await closed;
  }

  /** Ends the connection as a cut does. */
  cut(): void {
    this.#socket.terminate();
  }
}
