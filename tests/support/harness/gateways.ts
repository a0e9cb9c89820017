import { afterAll, afterEach, beforeAll, beforeEach, inject } from 'vitest';
import type { Database } from '../../../store/database.ts';
import { attemptKey } from '../../../core/keys.ts';
import { openAttempt, type OpenAttempt } from '../../../store/queries/open-attempt.ts';
import { readCalls, type StoredCall } from '../../../store/queries/read-calls.ts';
import { replicas } from '../../../store/schema.ts';
import type { TestDatabase, TestPostgres } from './postgres.ts';
export { until as eventually } from './until.ts';
import { useDatabase, useServer } from './use-database.ts';
import {
  startGateway,
  type NodeGateway,
  type NodeGatewayOptions,
} from '../../../gateway/runtimes/node/start-gateway.ts';
import { FakeEngine } from '../fakes/fake-engine.ts';
import { startWorkerGateway } from './worker-gateway.ts';
import './heavy-thread-setup.ts';
import './workerd-setup.ts';

export const SECRET = 'a secret of sixteen characters';
/** True when the tests run against workerd. The same test files run against Node (vitest.config.ts). */
export const IN_WORKERD = process.env['TRIALGATE_TEST_RUNTIME'] === 'workerd';
export const ADMIN_KEY = 'admin-key-of-the-tests';

export function startTestGateway(options: NodeGatewayOptions): Promise<NodeGateway> {
  if (IN_WORKERD) return startWorkerGateway(inject('workerBundle'), options);
  const bundled = inject('heavyThread');
  return startGateway(bundled === undefined ? options : { heavyThread: new URL(bundled), ...options });
}

type Options = Partial<NodeGatewayOptions>;

/** Gives each test a fresh gateway, as deployed, in front of a fake engine and a real PostgreSQL. */
export const useGateway = (options: Options = {}): TestGateway => eachWithOwn(useDatabase(new TestGateway()), options);

/** Does the same on a server that no other file uses, for tests that stop it or change its settings. */
export const useGatewayOnServer = (options: Options = {}) =>
  eachWithOwn(useServer(new TestGateway<TestPostgres>()), options);

/**
 * Gives all tests of a file one gateway, and each a fresh engine at the same address. The gateway of a test that restarts it ends with that
 * test. For tests that read no counter of the gateway and change nothing that it remembers of its engine.
 */
export const useSharedGateway = (options: Options = {}): TestGateway => share(useDatabase(new TestGateway()), options);

function eachWithOwn<T extends TestGateway>(context: T, options: Options): T {
  beforeEach(async () => {
    await context.openEngine();
    await context.start(options);
  });
  afterEach(async () => {
    await context.gateway?.close();
    await context.closeEngine();
  });
  return context;
}

export function share<T extends TestGateway>(context: T, options: Options): T {
  let shared: NodeGateway | undefined;
  beforeAll(() => context.openEngine());
  beforeEach(async () => {
    context.renewEngine();
    context.log.length = 0;
    if (shared) return;
    await context.start(options);
    shared = context.gateway;
  });
  afterEach(async ({ task }) => {
    // A failed test may have left it in any state.
    if (context.gateway === shared && task.result?.state !== 'fail') return;
    shared = undefined;
    await context.gateway?.close();
  });
  afterAll(async () => {
    await shared?.close();
    await context.closeEngine();
  });
  return context;
}

export class TestGateway<P extends TestDatabase = TestDatabase> {
  postgres!: P;
  db!: Database;
  engine!: FakeEngine;
  gateway!: NodeGateway;
  readonly log: string[] = [];
  #trials = 0;

  async openEngine(): Promise<void> {
    this.engine = await new FakeEngine().start();
  }

  /** Puts a new engine into the place of the one that a test has used. */
  renewEngine(): void {
    this.engine = new FakeEngine().takeOver(this.engine);
  }

  async closeEngine(): Promise<void> {
    await this.engine?.stop();
  }

  protected get engineUrl(): string {
    return this.engine.url;
  }

  async start(options: Partial<NodeGatewayOptions> = {}): Promise<void> {
    this.log.length = 0;
    const engines = options.engines ?? [this.engineUrl];
    this.gateway = await startTestGateway({
      host: '127.0.0.1',
      port: 0,
      databaseUrl: this.postgres.url,
      adminKey: ADMIN_KEY,
      secret: SECRET,
      drainMs: 500,
      log: (line) => this.log.push(line),
      ...options,
      engines,
      settings: { idleMs: 20_000, ...options.settings },
    });
  }

  /** Returns the URLs of the replicas, sorted. */
  async replicaUrls(): Promise<string[]> {
    return (await this.db.select().from(replicas)).map(({ url }) => url).toSorted();
  }

  /** Starts the gateway as a new process would. */
  async restart(options: Partial<NodeGatewayOptions> = {}): Promise<void> {
    await this.gateway.close();
    await this.start(options);
  }

  /** Gives the engine's pool to `runId` and sets its weight version. */
  async givePool(runId: string, weightVersion: string | null, inRotation = true): Promise<void> {
    await this.db.update(replicas).set({ runId, weightVersion, inRotation, updatedAt: new Date() });
    await new Promise((resolve) => setTimeout(resolve, 250));
  }

  async trial(input: Partial<OpenAttempt> = {}) {
    const trialId = input.trialId ?? `trial-${process.pid}-${++this.#trials}`;
    const { attempt } = await openAttempt(this.db, { trialId, ...input });
    const key = attemptKey(SECRET, trialId, attempt);
    return {
      id: trialId,
      attempt,
      key,
      baseUrl: `${this.gateway.url}/${trialId}/v1`,
      chat: (body: unknown, init: RequestInit = {}) => this.chat(trialId, key, body, init),
      complete: (body: unknown, init: RequestInit = {}) => this.post(`/${trialId}/v1/completions`, key, body, init),
      calls: (): Promise<StoredCall[]> => readCalls(this.db, { trialId, attempt }),
    };
  }

  chat(trialId: string, key: string, body: unknown, init: RequestInit = {}): Promise<Response> {
    return this.post(`/${trialId}/v1/chat/completions`, key, body, init);
  }

  post(path: string, key: string, body: unknown, init: RequestInit = {}): Promise<Response> {
    return fetch(`${this.gateway.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: typeof body === 'string' || body instanceof Uint8Array ? (body as BodyInit) : JSON.stringify(body),
      ...init,
    });
  }

  admin(method: string, path: string, body?: unknown): Promise<Response> {
    return fetch(`${this.gateway.url}${path}`, {
      method,
      headers: { authorization: `Bearer ${ADMIN_KEY}` },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  }

  /** Returns the values of `/metrics` by name and weight versions. */
  async metrics(): Promise<Record<string, number>> {
    const lines = (await (await fetch(`${this.gateway.url}/metrics`)).text())
      .split('\n')
      .filter((line) => line && !line.startsWith('#'));
    return Object.fromEntries(
      lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ')))]),
    );
  }
}

/** Settings for tests of what happens when waits end. Other tests wait as long as needed, however busy the machine is. */
export const IMPATIENT = { holdMs: 400, idleMs: 400, storeWaitMs: 1_500 };

export const ASK = { model: 'gpt-4o', messages: [{ role: 'user', content: 'Say hello' }] };

/** Reads a body as far as it came, and whether its connection broke. */
export async function readBroken(response: Response): Promise<{ text: string; broken: boolean }> {
  const decoder = new TextDecoder();
  let text = '';
  try {
    for await (const bytes of response.body ?? []) text += decoder.decode(bytes, { stream: true });
  } catch {
    return { text, broken: true };
  }
  return { text, broken: false };
}

/** Reads a stream's events as the agent gets them, and whether its connection broke. */
export async function readStream(response: Response) {
  const { text, broken } = await readBroken(response);
  const events = text.split('\n\n').filter((event) => event !== '' && !event.startsWith(':'));
  const data = events.map((event) => event.replace(/^data: /, ''));
  const chunks = data.filter((event) => event !== '[DONE]').map((event) => JSON.parse(event) as Chunk);
  return {
    text,
    broken,
    done: data.includes('[DONE]'),
    chunks,
    finish: chunks.find((chunk) => chunk.choices?.[0]?.finish_reason),
  };
}

export type Chunk = Record<string, unknown> & {
  choices?: (Record<string, unknown> & { finish_reason?: string | null; delta?: { content?: string } })[];
  error?: { code: string; message: string };
};
