/**
 * Shows where the time of a rollout phase goes: when its trials open, make calls, get replies and are sealed, and which processes use
 * the processor meanwhile. Needs Linux, because it reads /proc.
 *
 *   node bench/rollout-profile.ts --iterations 3
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { eq, sql } from 'drizzle-orm';
import { readRunFile } from '../cli/run/read-run-file.ts';
import { startRun } from '../cli/run/start-run.ts';
import { watchRun } from '../cli/run/watch-run.ts';
import { table } from '../cli/show/table.ts';
import { listPids, statColumns } from '../core/process-stat.ts';
import { REPOSITORY } from '../core/repository.ts';
import type { Database } from '../store/database.ts';
import { calls, groups, trials } from '../store/schema.ts';
import { provenance, withStack } from './deployment.ts';
import { optionsOf } from './options.ts';

const { iterations } = optionsOf(import.meta.url, { iterations: 3 });
const RUN = 'profile';
const TICKS_A_SECOND = 100;
const POLL_MS = 1000;

const NAMES: [RegExp, string][] = [
  [/VLLM::Worker/, 'vLLM worker'],
  [/VLLM::EngineCore|api_server/, 'vLLM engine core and API'],
  [/start-dev/, 'Temporal'],
  [/postgres/, 'PostgreSQL'],
  [/main\.ts gateway/, 'gateway'],
  [/main\.ts worker/, 'workers'],
  [/launcher-process/, 'launcher'],
  [/trialgate_gpu/, 'trainer'],
  [/rollout-profile/, 'this benchmark'],
];

/** Returns the seconds of processor time so far by kind of process. The time of ended children counts as `sandboxes and others`. */
function processorSeconds(): Map<string, number> {
  const seconds = new Map<string, number>();
  const add = (name: string, ticks: number) => seconds.set(name, (seconds.get(name) ?? 0) + ticks / TICKS_A_SECOND);
  for (const pid of listPids()) {
    try {
      const [user, system, childUser, childSystem] = statColumns(pid)?.slice(11, 15).map(Number) ?? [];
      const command = readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ');
      const rest = 'sandboxes and others';
      add(NAMES.find(([pattern]) => pattern.test(command))?.[1] ?? rest, (user ?? 0) + (system ?? 0));
      add(rest, (childUser ?? 0) + (childSystem ?? 0));
    } catch {
      continue; // The process ended meanwhile.
    }
  }
  return seconds;
}

const readings: { at: number; seconds: Map<string, number> }[] = [];
const readingAt = (time: number) =>
  readings.reduce((best, each) => (Math.abs(each.at - time) < Math.abs(best.at - time) ? each : best));

async function trialTimes(db: Database, iteration: number) {
  return db
    .select({
      opened: trials.createdAt,
      asked: sql<Date>`min(${calls.startedAt})`.mapWith(calls.startedAt),
      answered: sql<Date>`max(${calls.endedAt})`.mapWith(calls.endedAt),
      completed: trials.completedAt,
      sealed: trials.sealedAt,
    })
    .from(trials)
    .innerJoin(calls, eq(calls.trialId, trials.id))
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(sql`${groups.runId} = ${RUN} and ${groups.iteration} = ${iteration}`)
    .groupBy(trials.id);
}

const QUANTILES = [0, 0.1, 0.5, 0.9, 1];

const config = await readRunFile(join(REPOSITORY, 'quickstart.yaml'), {
  iterations,
  evaluation: { tasks: [], samples: 1, before: false, every: null, after: false },
});
const parts = await withStack(async ({ client, db, ...connected }, _, signal) => {
  const timer = setInterval(() => readings.push({ at: Date.now(), seconds: processorSeconds() }), POLL_MS);
  await startRun(client, RUN, config);
  await watchRun({ client, db, ...connected }, RUN, signal);
  clearInterval(timer);
  const out: string[] = [];
  for (let iteration = 1; iteration < iterations; iteration++) {
    const rows = await trialTimes(db, iteration);
    const [begin] = await db
      .select({ at: sql<Date>`min(${groups.openedAt})`.mapWith(groups.openedAt) })
      .from(groups)
      .where(sql`${groups.runId} = ${RUN} and ${groups.iteration} = ${iteration}`);
    const zero = begin?.at.getTime() ?? 0;
    const events = ['opened', 'asked', 'answered', 'completed', 'sealed'] as const;
    const secondsOf = (event: (typeof events)[number]) =>
      rows.map((row) => ((row[event]?.getTime() ?? Number.NaN) - zero) / 1000).toSorted((a, b) => a - b);
    const quantiles = events.map((event) => [
      event,
      ...QUANTILES.map((q) => secondsOf(event)[Math.floor(q * (rows.length - 1))]?.toFixed(1) ?? '–'),
    ]);
    const end = zero + Math.max(...secondsOf('sealed')) * 1000;
    const [from, to] = [readingAt(zero), readingAt(end)];
    const used = [...to.seconds]
      .map(([name, seconds]) => [name, seconds - (from.seconds.get(name) ?? 0)] as const)
      .filter(([, seconds]) => seconds >= 0.1);
    out.push(`iteration ${iteration}, ${rows.length} trials: seconds from the start of its first group`);
    out.push(table(['', 'first', '10%', 'median', '90%', 'last'], quantiles));
    out.push(`processor seconds in ${((to.at - from.at) / 1000).toFixed(0)} s of it`);
    out.push(
      table(
        ['process', 'seconds'],
        used.toSorted((a, b) => b[1] - a[1]).map(([name, seconds]) => [name, seconds.toFixed(1)]),
      ),
    );
  }
  return out;
});
console.log(parts.join('\n\n'));
mkdirSync(join(REPOSITORY, 'bench/results'), { recursive: true });
writeFileSync(
  join(REPOSITORY, 'bench/results/rollout-profile.txt'),
  `${JSON.stringify(provenance(), null, 2)}\n\n${parts.join('\n\n')}\n`,
);
