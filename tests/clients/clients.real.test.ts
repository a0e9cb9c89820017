import { beforeAll, expect, test } from 'vitest';
import { TestPostgres } from '../support/harness/postgres.ts';
import { startGateway } from '../../gateway/runtimes/node/start-gateway.ts';
import { harborPython } from '../support/harness/harbor.ts';
import { withVllm } from '../support/harness/own-vllm.ts';
import { listAgents } from '../../activities/sandbox/load-agent.ts';
import { CLIENTS } from './all.ts';
import {
  clientBesideVllm,
  differs,
  firstDifference,
  isAnswered,
  ONE_AT_A_TIME,
  refusedIn,
  sessionBesideVllm,
  type BesideResult,
} from './beside-vllm.ts';
import { RETRY, type Client } from './client.ts';
import { install } from './install.ts';
import { runAsAgent } from './run-as-agent.ts';
import { runInHarbor } from './run-in-harbor.ts';
import type { runClient } from './run.ts';
import { toySession, type ToySession } from './toy-session.ts';

const ADMIN_KEY = 'the admin key';
const SIDE_BY_SIDE = 3;
/** These clients are bundled agents too. */
const AGENTS = await listAgents();
const AS_AGENT = CLIENTS.filter(({ name }) => AGENTS.includes(name));
const IN_HARBOR = CLIENTS.filter(({ name }) => ['mini-swe-agent', 'codex', 'claude-code'].includes(name));
const BESIDE_VLLM = CLIENTS.filter(({ besideVllm }) => besideVllm);

/** The result of a client: its session, the error of its run, or the reason for which it does not install. */
type Result<T> = T | Error | string;
type BesideVllm = { alone: BesideResult; session: Omit<BesideResult, 'ran'> };
const played = new Map<string, Promise<Result<ToySession>>>();
/** The same with `constrained_decoding: hint`. */
const hinted = new Map<string, Promise<Result<ToySession>>>();
const asAgent = new Map<string, Promise<Result<ToySession>>>();
const inHarbor = new Map<string, Promise<Result<ToySession>>>();
const besideVllm = new Map<string, Result<BesideVllm>>();

beforeAll(async () => {
  const signal = AbortSignal.timeout(860_000);
  const postgres = await TestPostgres.create();
  const lanes: Promise<unknown>[] = Array.from({ length: SIDE_BY_SIDE }, () => Promise.resolve());
  for (const [i, client] of CLIENTS.entries()) {
    const playing = (lanes[i % SIDE_BY_SIDE] ?? Promise.resolve()).then(() => playToy(client, postgres.url, signal));
    played.set(client.name, playing);
    const again = client.modes.some(({ constrained }) => constrained)
      ? playing.then(() => playToy(client, postgres.url, signal, { constrained_decoding: 'hint' }))
      : playing;
    hinted.set(client.name, again);
    const last = AS_AGENT.includes(client)
      ? again.then(() => playToy(client, postgres.url, signal, {}, runAsAgent))
      : again;
    asAgent.set(client.name, last);
    const all = IN_HARBOR.includes(client)
      ? last.then(async () => {
          const harbor = await harborPython(signal).catch((error: unknown) => ({ why: String(error) }));
          return typeof harbor === 'object' ? harbor.why : playToy(client, postgres.url, signal, {}, runInHarbor);
        })
      : last;
    inHarbor.set(client.name, all);
    lanes[i % SIDE_BY_SIDE] = all;
  }
  try {
    await withVllm(
      async (vllm) => {
        const gateway = await startGateway({
          host: '127.0.0.1',
          port: 0,
          engines: [vllm],
          databaseUrl: postgres.url,
          adminKey: ADMIN_KEY,
          secret: 'a secret of sixteen characters',
          settings: { tokenIn: false },
        });
        for (const client of BESIDE_VLLM) {
          const first = await played.get(client.name);
          if (typeof first !== 'object' || first instanceof Error) continue;
          const at = {
            folder: await install(client.install, signal),
            gateway: { url: gateway.url, adminKey: ADMIN_KEY },
            vllm,
            limitMs: 180_000,
            signal,
          };
          const both = async () => ({
            alone: await clientBesideVllm(client, at),
            session: await sessionBesideVllm(client, first, at),
          });
          besideVllm.set(client.name, await both().catch(asError));
        }
        await gateway.close();
      },
      signal,
      { args: ONE_AT_A_TIME, cacheGiB: 3, layers: 4 },
    );
  } finally {
    await Promise.all(lanes);
    await postgres.close();
  }
});

async function playToy(
  client: Client,
  databaseUrl: string,
  signal: AbortSignal,
  sampling: Record<string, unknown> = {},
  run?: typeof runClient,
): Promise<Result<ToySession>> {
  const folder = await install(client.install, signal).catch((error: unknown) => ({ why: String(error) }));
  if (typeof folder === 'object') return folder.why;
  return toySession(client, { folder, databaseUrl, limitMs: 180_000, sampling, ...(run ? { run } : {}) }).catch(
    asError,
  );
}

const asError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)));

function found<T>(result: Result<T> | undefined, { name }: Client, skip: (why: string) => never): T {
  if (result instanceof Error) throw result;
  return typeof result === 'string' || result === undefined ? skip(`${name} does not install: ${result}`) : result;
}

test.for(CLIENTS)(
  '$name finishes with tools and streams; the gateway records each generation once, with the sampled ids and the text that the client received',
  async (client, { skip }) => {
    const { ran, recorded, faults, generated, modes } = found(await played.get(client.name), client, skip);
    expect([ran.code, ran.timedOut], ran.output.slice(-2_000)).toEqual([0, false]);
    expect(faults).toEqual([]);
    expect(recorded).toMatchObject({ calls: generated.length, unfinished: 0, drifted: 0 });
    expect(recorded.protocols).toContain(client.protocol);
    expect(recorded.clean > 0).toBe(client.branches !== true);
    expect(modes.map(({ mode }) => mode).toSorted()).toEqual(client.modes.map(({ name }) => name).toSorted());
    // Every token of a trainable call is trained once.
    expect(recorded.trained).toBe(recorded.trainable);
  },
);

test.for(CLIENTS)(
  '$name: the calls of its modes are trainable, except those that a grammar or a forced tool constrains, which are marked with the reason',
  async (client, { skip }) => {
    const { modes } = found(await played.get(client.name), client, skip);
    const expected = client.modes.map(({ name, constrained = 0 }) => [
      name,
      constrained,
      constrained > 0 ? ['sampling_not_reproducible'] : [],
    ]);
    expect(Object.fromEntries(modes.map(({ mode, ...each }) => [mode, [each.untrainable, each.reasons]]))).toEqual(
      Object.fromEntries(expected.map(([name, ...rest]) => [name, rest])),
    );
  },
);

/** Expects that the client ended well, and that each of its calls is recorded once and can be trained on. */
function expectAllTrainable({ ran, recorded, faults, generated }: ToySession): void {
  expect([ran.code, ran.timedOut], ran.output.slice(-2_000)).toEqual([0, false]);
  expect(faults).toEqual([]);
  expect(recorded).toMatchObject({ calls: generated.length, unfinished: 0, drifted: 0, untrainable: 0 });
}

test.for(AS_AGENT)(
  'the bundled agent $name works on a task in a sandbox, and all of its calls are recorded and trainable',
  async (client, { skip }) => {
    const session = found(await asAgent.get(client.name), client, skip);
    expectAllTrainable(session);
    // Aider asks once, where no test follows its edit.
    if (client.name !== 'aider') expect(session.recorded.calls).toBeGreaterThan(client.modes.length);
  },
);

test.for(IN_HARBOR)(
  'Harbor runs $name unmodified in a sandbox of Trialgate, and all of its calls are recorded and trainable',
  async (client, { skip }) => {
    const session = found(await inHarbor.get(client.name), client, skip);
    expectAllTrainable(session);
    expect(session.recorded.calls).toBeGreaterThan(client.modes.length);
  },
);

const CONSTRAINED = CLIENTS.filter(({ modes }) => modes.some(({ constrained }) => constrained));

test.for(CONSTRAINED)(
  '$name: with `constrained_decoding: hint` every call of every mode is trainable',
  async (client, { skip }) => {
    const { ran, modes, faults } = found(await hinted.get(client.name), client, skip);
    expect([ran.code, faults], ran.output.slice(-2_000)).toEqual([0, []]);
    expect(modes.map(({ mode, untrainable }) => [mode, untrainable])).toEqual(
      client.modes.map(({ name }) => [name, 0]),
    );
  },
);

const RETRYING = CLIENTS.filter(({ modes }) => modes.some((mode) => mode.name === RETRY));

test.for(RETRYING)(
  '$name retries a request of its conversation after the connection broke',
  async (client, { skip }) => {
    expect(found(await played.get(client.name), client, skip).tries).toBe(2);
  },
);

/** Expects the same answers from the gateway and from vLLM itself, all recorded. They are useless for training, because they are greedy. */
function expectEqual({ compared, recorded }: Omit<BesideResult, 'ran'>): void {
  expect(compared.filter(differs).map(firstDifference)).toEqual([]);
  const calls = compared.filter(isAnswered).length;
  expect(recorded).toMatchObject({ calls, unfinished: compared.length - calls, untrainable: calls, samples: 0 });
}

test.for(BESIDE_VLLM)(
  '$name receives the same replies through the gateway as from vLLM itself, and each call is recorded',
  (client, { skip }) => {
    const { alone } = found(besideVllm.get(client.name), client, skip);
    expect([alone.ran.code, alone.ran.timedOut], alone.ran.output.slice(-2_000)).toEqual([
      client.givesUp ? 1 : 0,
      false,
    ]);
    expect(alone.compared.filter(isAnswered).length).toBeGreaterThan(0);
    expectEqual(alone);
  },
);

test.for(BESIDE_VLLM)(
  '$name: the gateway answers the turns of its session with tools as vLLM itself does',
  async (client, { skip, annotate }) => {
    const { compared, recorded } = found(besideVllm.get(client.name), client, skip).session;
    await annotate(`vLLM refused, by status: ${JSON.stringify(refusedIn(compared))} of ${compared.length}`);
    expect(compared.filter(isAnswered).length).toBeGreaterThanOrEqual(2);
    expectEqual({ compared, recorded });
  },
);
