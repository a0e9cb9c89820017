/**
 * Measures what Trialgate adds to an iteration: compares its wall time with the same requests sent directly to the engine plus the
 * train step alone, in the same deployment, and with TRL's GRPOTrainer if `--trl STEPS` is given.
 *
 *   node bench/iteration.ts --iterations 5 --trl 3
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { and, asc, eq } from 'drizzle-orm';
import { Agent } from 'undici';
import { z } from 'zod';
import { weightVersionOf } from '../core/weight-version.ts';
import { readRunFile } from '../cli/run/read-run-file.ts';
import { startRun } from '../cli/run/start-run.ts';
import { watchRun } from '../cli/run/watch-run.ts';
import { readRunRecord } from '../cli/show/run-record.ts';
import { REPOSITORY } from '../core/repository.ts';
import type { Database } from '../store/database.ts';
import type { JsonObject } from '../core/json.ts';
import { readCalls } from '../store/queries/read-calls.ts';
import { groups, iterations, trials } from '../store/schema.ts';
import { provenance, withStack } from './deployment.ts';
import { iterationReport, type IterationRow } from './iteration-report.ts';
import { optionsOf } from './options.ts';

const options = optionsOf(import.meta.url, { iterations: 5, trl: 0 });
const RUN = 'bench-iteration';
const results = join(REPOSITORY, 'bench/results');

/** Sends the recorded requests again, all at once, each with the length of its recorded reply. Returns the wall seconds. */
async function sendDirect(
  engine: string,
  recorded: { request: JsonObject; tokens: number }[],
  salt: string,
): Promise<number> {
  const socketPath = engine.replace(/^unix:/, '');
  const dispatcher = new Agent({ connect: { socketPath }, connections: 128, headersTimeout: 0, bodyTimeout: 0 });
  const start = performance.now();
  await Promise.all(
    recorded.map(async ({ request, tokens }) => {
      const body = {
        ...request,
        model: 'policy',
        temperature: 1,
        max_tokens: tokens,
        min_tokens: tokens,
        ignore_eos: true,
      };
      Object.assign(body, { logprobs: true, top_logprobs: 0, return_token_ids: true, cache_salt: salt });
      const reply = await dispatcher.request({
        origin: 'http://engine',
        path: '/v1/chat/completions',
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      if (reply.statusCode !== 200) throw new Error(`engine answered ${reply.statusCode}: ${await reply.body.text()}`);
      await reply.body.dump();
    }),
  );
  await dispatcher.close();
  return (performance.now() - start) / 1000;
}

async function requestsOf(db: Database, iteration: number) {
  const ofIteration = and(eq(groups.runId, RUN), eq(groups.iteration, iteration));
  const tried = await db
    .select({ trialId: trials.id, attempt: trials.attempt })
    .from(trials)
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(ofIteration);
  const made = (await Promise.all(tried.map((trial) => readCalls(db, trial)))).flat();
  const completed = made
    .filter(({ status }) => status === 'completed')
    .toSorted((a, b) => a.startedAt.getTime() - b.startedAt.getTime());
  const first = [...Map.groupBy(made, ({ trialId }) => trialId).values()].map((ofTrial) =>
    Math.min(...ofTrial.map(({ startedAt }) => startedAt.getTime())),
  );
  return {
    requests: completed.map(({ request, completionTokenIds: ids }) => ({ request, tokens: ids?.length ?? 0 })),
    firstCallsAt: { first: Math.min(...first), last: Math.max(...first) },
  };
}

/** Returns when an iteration started, and the seconds from there to the start of the next, or to its own end for the last one. */
async function wallOf(db: Database, iteration: number): Promise<{ start: number; seconds: number }> {
  const takes = await db.select().from(iterations).where(eq(iterations.runId, RUN)).orderBy(asc(iterations.iteration));
  const end = takes[iteration + 1]?.openedAt ?? takes[iteration]?.endedAt;
  const start = takes[iteration]?.openedAt.getTime() ?? Number.NaN;
  return { start, seconds: ((end?.getTime() ?? Number.NaN) - start) / 1000 };
}

const config = await readRunFile(join(REPOSITORY, 'quickstart.yaml'), {
  iterations: options.iterations,
  evaluation: { tasks: [], samples: 1, before: false, every: null, after: false },
});
const rows = await withStack(async (connected, stack, signal) => {
  await startRun(connected.client, RUN, config);
  await watchRun(connected, RUN, signal);
  const record = await readRunRecord(connected.db, RUN);
  const measured: IterationRow[] = [];
  for (const { iteration, seconds, metrics } of record.iterations) {
    const { requests: recorded, firstCallsAt } = await requestsOf(connected.db, iteration);
    const direct = await sendDirect(
      stack.plan.engines[0] ?? '',
      recorded,
      encodeURIComponent(`${weightVersionOf(RUN, 1000 + iteration)}`),
    );
    const { start, seconds: trialgate } = await wallOf(connected.db, iteration);
    const train = metrics['timing_s/step'] ?? Number.NaN;
    measured.push({
      iteration,
      trialgate,
      direct,
      train,
      ratio: trialgate / (direct + train),
      firstCalls: { first: (firstCallsAt.first - start) / 1000, last: (firstCallsAt.last - start) / 1000 },
      tokens: recorded.reduce((sum, each) => sum + each.tokens, 0),
      seconds,
    });
  }
  return measured;
});

const trlSteps = z.array(z.object({ step: z.number(), seconds: z.number(), reward_mean: z.number() }));
let trl: z.output<typeof trlSteps> = [];
if (options.trl > 0) {
  const out = join(results, 'iteration-trl.jsonl');
  const python = join(REPOSITORY, '.trialgate/bench-venv/bin/python');
  const { status } = spawnSync(python, ['bench/trl_baseline.py', '--steps', String(options.trl), '--out', out], {
    cwd: REPOSITORY,
    stdio: 'inherit',
  });
  if (status !== 0) throw new Error('the TRL baseline failed; see above');
  trl = trlSteps.parse(
    readFileSync(out, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line)),
  );
}

const text = iterationReport(rows, trl);
console.log(text);
mkdirSync(results, { recursive: true });
writeFileSync(join(results, 'iteration.json'), `${JSON.stringify({ ...provenance(), rows, trl }, null, 2)}\n`);
writeFileSync(join(results, 'iteration.txt'), `${JSON.stringify(provenance(), null, 2)}\n\n${text}\n`);
