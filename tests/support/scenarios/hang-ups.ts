import { setTimeout as pause } from 'node:timers/promises';
import { openDatabase } from '../../../store/database.ts';
import { readCalls } from '../../../store/queries/read-calls.ts';
import { trials } from '../../../store/schema.ts';
import { TestPostgres } from '../harness/postgres.ts';
import { GatewayProcess } from '../harness/gateway-process.ts';
import { trialOverHttp } from '../harness/trial-over-http.ts';
import { TokenEngine } from '../fakes/token-engine.ts';

export type HangUp = {
  stream: boolean;
  /** The engine's route that was at work, or null before, between and after them. */
  at: string | null;
  /** Milliseconds until the engine's last connection for it was closed; null when the engine had no request. */
  ms: number | null;
  /** The status of the recorded call. `absent`: the agent left before the gateway had read the request. */
  status: 'cancelled' | 'completed' | 'failed' | 'absent';
};

type Options = { hangUps: number; agents: number; signal: AbortSignal };
type ObservedRequest = { name: string; path: string; from: number; to: number | null; whole: boolean };

const ADMIN_KEY = 'the admin key';
const BUSY_MS = 150;
const LONGEST_MS = 250;
const PAUSE_MS = 20;
const TURNS = 2;
const TRIES = 4;
const WARM_UPS = 10;

/**
 * Plays agents that hang up at random moments of a call: in first turns, which the engine's chat route answers, and in later ones, which
 * continue by ids.
 */
export async function hangUpAtRandom({ hangUps, agents, signal }: Options): Promise<HangUp[]> {
  const postgres = await TestPostgres.create();
  const db = openDatabase(postgres.url);
  const asked: ObservedRequest[] = [];
  const engines = await Promise.all(
    [true, false].map(async (parses) => Object.assign(await new TokenEngine().start(), { parses, pace: 5 })),
  );
  for (const engine of engines) keepLog(engine, asked);
  const gateway = new GatewayProcess({
    engines: engines.map(({ url }) => url),
    databaseUrl: postgres.url,
    adminKey: ADMIN_KEY,
    secret: 'a secret of sixteen characters',
  });
  const left: { name: string; stream: boolean; at: number }[] = [];
  try {
    await gateway.start();
    let [begun, opened] = [0, 0];
    const converse = async (leaves: boolean): Promise<void> => {
      const trialId = `trial-${opened++}`;
      const trial = await trialOverHttp({ url: gateway.url, adminKey: ADMIN_KEY }, trialId);
      let messages: unknown[] = [{ role: 'user', content: trialId }];
      for (let turn = 0; turn < TURNS; turn++) {
        for (let i = 0; i < (leaves ? TRIES : 0); i++) {
          signal.throwIfAborted();
          const [name, stream, leaving] = [`${trialId}/${turn}/${i}`, i % 2 === 1, new AbortController()];
          begun += 1;
          const body = { messages, stream, cue: { lines: [{ text: 'a reply of some length' }], log: name } };
          const reply = trial.chat(body, { signal: leaving.signal }).then((response) => response.text());
          reply.catch(() => {});
          await pause(Math.random() * LONGEST_MS);
          left.push({ name, stream, at: performance.now() });
          leaving.abort();
          await pause(PAUSE_MS);
        }
        const reply = await trial.chat({ messages, cue: { lines: [{ text: 'hello' }], log: 'whole' } });
        const { choices } = (await reply.json()) as { choices: { message: unknown }[] };
        messages = [...messages, choices[0]?.message, { role: 'user', content: `and ${turn}?` }];
      }
    };
    const isEnough = () => begun >= hangUps;
    const together = (lane: () => Promise<void>) => Promise.all(Array.from({ length: agents }, lane));
    // Warms up, because code is slow when it runs for the first time.
    for (let i = 0; i < WARM_UPS; i++) await together(() => converse(false));
    await together(async () => {
      while (!isEnough()) await converse(true);
    });
    // Even the last call's connection closes long before the engine would have answered.
    await pause(1_000);
    await gateway.kill('SIGTERM');
    const statuses = new Map<string, HangUp['status']>();
    for (const { id } of await db.select({ id: trials.id }).from(trials)) {
      for (const { request, status } of await readCalls(db, { trialId: id, attempt: 1 }))
        statuses.set((request.cue as { log: string }).log, status);
    }
    return left.map(({ name, stream, at }) => {
      const own = asked.filter((each) => each.name === name);
      const open = own.filter(({ from, to }) => from <= at && (to ?? Infinity) > at);
      const cut = own.flatMap(({ to, whole }) => (to !== null && to > at && !whole ? [to - at] : []));
      return {
        stream,
        at: open[0]?.path ?? null,
        ms: cut.length > 0 ? Math.max(...cut) : null,
        status: statuses.get(name) ?? 'absent',
      };
    });
  } finally {
    await gateway.kill();
    await Promise.all(engines.map((engine) => engine.stop()));
    await db.$client.end();
    await postgres.close();
  }
}

function keepLog(engine: TokenEngine, asked: ObservedRequest[]): void {
  engine.before = async ({ path, body, response }) => {
    const cue = body.cue ?? (body.chat_request as typeof body | undefined)?.cue;
    if (!cue || cue.log === 'whole') return;
    const entry: ObservedRequest = { name: cue.log, path, from: performance.now(), to: null, whole: false };
    asked.push(entry);
    response.on('close', () => Object.assign(entry, { to: performance.now(), whole: response.writableFinished }));
    await pause(Math.random() * BUSY_MS);
  };
}
