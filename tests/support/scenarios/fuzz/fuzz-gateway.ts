import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { openDatabase } from '../../../../store/database.ts';
import { attemptKey } from '../../../../core/keys.ts';
import { openAttempt } from '../../../../store/queries/open-attempt.ts';
import { TestPostgres } from '../../harness/postgres.ts';
import { isObject, parseObject } from '../../../../gateway/json.ts';
import type { NodeGateway, NodeGatewayOptions } from '../../../../gateway/runtimes/node/start-gateway.ts';
import { TokenEngine } from '../../fakes/token-engine.ts';
import type { ToyRequest } from '../../fakes/toy-engine.ts';
import { goodRequest, noteReply, MARKS, newTalk, type Talk } from './good-request.ts';
import { mutateText } from './mutate.ts';
import { MutatingEngine } from './mutating-engine.ts';
import { Random, seedOf } from './random.ts';

const SECRET = 'a secret of sixteen characters';
const ADMIN_KEY = 'admin-key-of-the-fuzzer';
const AGENTS = 6;
/** Words of the gateway's replies that mean an internal error, also within the reason of a reply that broke off. */
const UNFORESEEN =
  /internal_error|uncaught|not_recorded|unrecorded|TypeError|RangeError|SyntaxError|\.ts:\d+|Cannot |is not (a function|iterable|a constructor)|Maximum call stack|Invalid (array|string|typed)|undefined|BigInt/;

/** Returns the bytes in use after a garbage collection, including buffers. */
function heapInUse(): number {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** `served` has the paths that were answered 200. `traffic` is the size of requests' and replies' bodies after the first agent, in bytes. */
export type FuzzResult = {
  seed: number;
  rounds: number;
  faults: string[];
  statuses: Record<string, number>;
  served: Set<string>;
  growth: number;
  traffic: number;
};

/** `start` starts the gateway. If that is a process of its own, its `inUse` reports its memory. */
export type FuzzOptions = {
  seed: number;
  rounds: number;
  start: (options: NodeGatewayOptions) => Promise<NodeGateway & { inUse?: () => number }>;
  signal: AbortSignal;
};

/** Plays agents whose requests and whose engine's replies are mutated, `rounds` times each, and lists everything that must never happen. */
export async function fuzzGateway({ seed, rounds, start, signal }: FuzzOptions): Promise<FuzzResult> {
  const faults: string[] = [];
  const unhandled = (error: unknown) =>
    faults.push(`unhandled: ${error instanceof Error ? error.stack : String(error)}`);
  process.on('unhandledRejection', unhandled);
  const postgres = await TestPostgres.create();
  const db = openDatabase(postgres.url);
  const inner = await Object.assign(new TokenEngine(), { inParts: true, before: sayLess }).start();
  const engine = await new MutatingEngine(inner.url, seed).start();
  const log = (line: string) => void (UNFORESEEN.test(line) && faults.push(`log: ${line.slice(0, 1500)}`));
  const options = {
    host: '127.0.0.1',
    port: 0,
    engines: [engine.url],
    databaseUrl: postgres.url,
    adminKey: ADMIN_KEY,
    secret: SECRET,
    drainMs: 500,
    log,
  };
  const gateway = await start({ ...options, settings: { holdMs: 300, idleMs: 2_000 } });
  const { inUse = heapInUse } = gateway;
  const statuses: Record<string, number> = {};
  const served = new Set<string>();
  let traffic = 0;
  try {
    const agent = async (name: string) => {
      const random = new Random(seedOf(seed, name));
      const own = { url: gateway.url, name, random, signal, served, talk: newTalk(`<${name}>`, random) };
      for (let round = 0; round < rounds && !signal.aborted; round++) {
        if (round % 20 === 0) {
          await openAttempt(db, { trialId: name, attempt: 1 + round / 20 });
          own.talk = newTalk(`<${name}>`, random);
        }
        const { status, bytes, fault } = await oneRound(own, 1 + Math.floor(round / 20));
        traffic += bytes;
        statuses[status] = (statuses[status] ?? 0) + 1;
        if (fault) faults.push(`round ${round}: ${fault}`);
      }
      faults.push(...(await foreignIn(own)));
    };
    await agent('warm');
    const before = inUse();
    traffic = 0;
    await Promise.all(Array.from({ length: AGENTS }, (_, i) => agent(`agent-${i}`)));
    return { seed, rounds: rounds * (AGENTS + 1), faults, statuses, served, growth: inUse() - before, traffic };
  } finally {
    await gateway.close();
    await engine.stop();
    await inner.stop();
    await db.$client.end();
    await postgres.close();
    process.off('unhandledRejection', unhandled);
  }
}

/** A mutated request may make the engine sample hundreds of thousands of tokens, which would take seconds. */
const sayLess = ({ body }: ToyRequest): void =>
  body.cue?.lines.forEach((line) => (line.text = line.text.slice(0, 5_000)));

type Agent = { url: string; name: string; random: Random; signal: AbortSignal; served: Set<string>; talk: Talk };

async function oneRound(
  { url, name, random, signal, served, talk }: Agent,
  attempt: number,
): Promise<{ status: number; bytes: number; fault: string | null }> {
  const { path, body: asked } = goodRequest(talk, random);
  const good = JSON.stringify(asked);
  // While the process is busy for seconds, its server could close an idle connection at its next use.
  const headers = { authorization: `Bearer ${attemptKey(SECRET, name, attempt)}`, connection: 'close' };
  const body = random.chance(0.5) ? new Uint8Array(mutateText(good, random)) : good;
  try {
    const reply = await fetch(`${url}/${name}${path}`, {
      method: 'POST',
      headers,
      body,
      signal: AbortSignal.any([signal, AbortSignal.timeout(60_000)]),
    });
    const text = await reply.text().catch(() => '');
    const bytes = body.length + text.length;
    if (reply.status === 200) {
      noteReply(talk, text);
      served.add(path);
    }
    const { error } = parseObject(text) ?? {};
    // The errors of some protocols have no code, but a message that says it.
    const code = isObject(error) ? String(error.code ?? (reply.status >= 500 ? error.message : '')) : '';
    if (UNFORESEEN.test(code))
      return { status: reply.status, bytes, fault: `${path} was answered ${text.slice(0, 300)}` };
    return { status: reply.status, bytes, fault: foreign(name, text) };
  } catch (error) {
    return {
      status: 0,
      bytes: 0,
      fault: `${path}: ${String(error)} ${error instanceof Error ? String(error.cause) : ''}`,
    };
  }
}

/** Returns texts of other trials in the record of one trial. */
async function foreignIn({ url, name }: Agent): Promise<string[]> {
  const faults: string[] = [];
  for (const path of [`/sessions/${name}`, `/sessions/${name}/samples`]) {
    const reply = await fetch(`${url}${path}`, { headers: { authorization: `Bearer ${ADMIN_KEY}` } });
    const text = await reply.text();
    if (reply.status !== 200) faults.push(`${path}: ${reply.status} ${text.slice(0, 300)}`);
    const fault = foreign(name, text);
    if (fault) faults.push(`${path}: ${fault}`);
  }
  return faults;
}

function foreign(name: string, text: string): string | null {
  const other = [...text.matchAll(MARKS)].find(([, marked]) => marked !== name);
  return other ? `${name} got what is of ${other[1]}` : null;
}
