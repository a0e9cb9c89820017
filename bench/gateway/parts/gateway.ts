import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sql } from 'drizzle-orm';
import { REPOSITORY } from '../../../core/repository.ts';
import { environment } from '../../../cli/supervisor/component.ts';
import { GATEWAY_HEAP } from '../../../cli/supervisor/components/gateway.ts';
import { openDatabase } from '../../../store/database.ts';
import { attemptKey } from '../../../core/keys.ts';
import { ENGINE_WEIGHT_VERSION } from '../engine/weight-version.ts';
import { startChild, type Child } from './child.ts';
import type { BenchPostgres } from './postgres.ts';

/** An open trial: the path of its calls and its key. */
export type OpenTrial = { id: string; path: string; key: string };
export type RecordedCounts = {
  completed: number;
  failed: number;
  cancelled: number;
  clean: number;
  untrainable: number;
};

export type BenchGateway = AsyncDisposable & {
  pid: number;
  url: string;
  /** Further gateway processes with the same database. */
  more: { pid: number; url: string }[];
  /** Gives the replicas that are there now to the run. */
  giveReplicas: () => Promise<void>;
  openTrials: (count: number) => Promise<OpenTrial[]>;
  /** Returns the numbers of recorded calls by status. `clean` counts those that continued from recorded ids. */
  recorded: () => Promise<RecordedCounts>;
  /** Returns the bytes of the table of calls with its indexes and large values. */
  stored: () => Promise<number>;
  /** Returns the size of one trial's rows in bytes, as PostgreSQL stores them. */
  storedOf: (trialId: string) => Promise<number>;
  tail: () => string;
};

/** `repository` is the folder of the gateway's code. If it is absent, this repository is used. `nodeArgs`: more options of its Node. */
type Options = {
  postgres: BenchPostgres;
  engine: string;
  processes?: number;
  repository?: string;
  nodeArgs?: readonly string[];
  profileTo?: (profile: string) => void;
  signal: AbortSignal;
};

export const BENCH_ADMIN_KEY = 'benchmark';
const SECRET = 'the secret of a benchmark';
const OPENERS = 8;
const RUN = ENGINE_WEIGHT_VERSION.slice(0, ENGINE_WEIGHT_VERSION.indexOf('@'));
/** The sampling settings and budgets that a run with default settings gives its trials. */
const FORCED = { sampling: { temperature: 1, top_p: 1, top_k: -1 }, budgets: { prompt_tokens: 1_000_000 } };
let databases = 0;
let trials = 0;

/** Starts a gateway as it is deployed: `trialgate gateway` in its own process, with its own database and an engine pool that belongs to a run. */
export async function startGateway({
  postgres,
  engine,
  processes = 1,
  repository = REPOSITORY,
  nodeArgs = [],
  profileTo,
  signal,
}: Options): Promise<BenchGateway> {
  await using stack = new AsyncDisposableStack();
  const home = mkdtempSync(join(tmpdir(), 'trialgate-bench-gateway-'));
  stack.defer(() => rmSync(home, { recursive: true, force: true }));
  const database = stack.use(await postgres.database(`cell_${++databases}`));
  const profile = profileTo ? ['--cpu-prof', '--cpu-prof-dir', home] : [];
  const settings = {
    port: 0,
    home,
    engine,
    'database-url': database.url,
    secret: SECRET,
    'admin-key': BENCH_ADMIN_KEY,
  };
  const launch = {
    name: 'the gateway',
    file: process.execPath,
    args: [
      ...GATEWAY_HEAP,
      ...nodeArgs,
      ...profile,
      join(repository, 'cli/trialgate.mjs'),
      'gateway',
      ...Object.entries(settings).flatMap(([name, value]) => [`--${name}`, `${value}`]),
    ],
    env: environment({}),
    cwd: home,
    ready: /listening on (http[^\s,]+)/,
    signal,
  };
  const child = await startChild(launch);
  stack.defer(async () => {
    await child.stop();
    const file = readdirSync(home).find((name) => name.endsWith('.cpuprofile'));
    if (file) profileTo?.(readFileSync(join(home, file), 'utf8'));
  });
  const more: Child[] = [];
  while (more.length < processes - 1) more.push(stack.use(await startChild(launch)));
  const db = openDatabase(database.url, { maxConnections: 1 });
  stack.defer(() => db.$client.end());
  // A gateway from before 0.4.0 has another name for the column (`--repository`, `before-after.ts`).
  const { rows: columns } = await db.execute<{ name: string }>(
    sql`select column_name as name from information_schema.columns where table_name = 'replicas' and column_name in ('weight_version', 'label')`,
  );
  const weightVersion = sql.identifier(columns[0]?.name ?? 'weight_version');
  const giveReplicas = () =>
    db.execute(
      sql`update replicas set run_id = ${RUN}, ${weightVersion} = ${ENGINE_WEIGHT_VERSION}, in_rotation = true, updated_at = now()`,
    );
  await giveReplicas();
  const owned = stack.move();
  return {
    pid: child.pid,
    url: child.readyMatch,
    more: more.map(({ pid, readyMatch }) => ({ pid, url: readyMatch })),
    tail: child.tail,
    giveReplicas: async () => void (await giveReplicas()),
    openTrials: (count) => openTrials(child.readyMatch, count),
    async recorded() {
      const { rows } = await db.execute<RecordedCounts>(sql`select
        count(*) filter (where status = 'completed')::int as completed, count(*) filter (where status = 'failed')::int as failed,
        count(*) filter (where status = 'cancelled')::int as cancelled, count(*) filter (where status = 'completed' and continuation = 'clean')::int as clean,
        count(*) filter (where status = 'completed' and untrainable is not null)::int as untrainable from calls`);
      return rows[0] ?? { completed: 0, failed: 0, cancelled: 0, clean: 0, untrainable: 0 };
    },
    async stored() {
      const { rows } = await db.execute<{ bytes: string }>(sql`select pg_total_relation_size('calls') as bytes`);
      return Number(rows[0]?.bytes ?? 0);
    },
    async storedOf(trialId) {
      const bytes = ['request', 'response', 'prompt_token_ids', 'completion_token_ids', 'logprobs']
        .map((name) => `coalesce(length(${name}), 0)`)
        .join(' + ');
      const { rows } = await db.execute<{ bytes: string }>(
        sql`select coalesce(sum(${sql.raw(bytes)}), 0) as bytes from calls where trial_id = ${trialId}`,
      );
      return Number(rows[0]?.bytes ?? 0);
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

/** Opens trials through the gateway's own route, which older code has too. */
async function openTrials(url: string, count: number): Promise<OpenTrial[]> {
  const opened: OpenTrial[] = Array.from({ length: count }, () => {
    const id = `bench-${++trials}`;
    return { id, path: `/${id}/v1/chat/completions`, key: attemptKey(SECRET, id, 1) };
  });
  const body = JSON.stringify({ run_id: RUN, attempt: 1, ...FORCED });
  const left = opened.values();
  await Promise.all(
    Array.from({ length: OPENERS }, async () => {
      for (const { id } of left) {
        const reply = await fetch(`${url}/sessions/${id}`, {
          method: 'POST',
          headers: { authorization: `Bearer ${BENCH_ADMIN_KEY}`, 'content-type': 'application/json' },
          body,
        });
        if (!reply.ok) throw new Error(`a trial cannot be opened: ${reply.status} ${await reply.text()}`);
      }
    }),
  );
  return opened;
}
