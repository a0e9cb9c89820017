/**
 * Shows whether a run learns: the reward by iteration and by minute for each seed or learning rate, and held-out tasks before and after.
 *
 *   node bench/learning.ts --iterations 14 --seeds 3
 *   node bench/learning.ts --iterations 12 --seeds 1 --staleness 1
 *   node bench/learning.ts --iterations 12 --seeds 3 --agent repair
 *   node bench/learning.ts --iterations 6 --seeds 1 --lr 1e-5,3e-5,1e-4
 *   .trialgate/bench-venv/bin/python bench/trl_baseline.py --steps 14 --out bench/results/learning-trl.jsonl
 *   .trialgate/bench-venv/bin/python bench/plot_learning.py
 */
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { readRunFile } from '../cli/run/read-run-file.ts';
import { startRun } from '../cli/run/start-run.ts';
import { watchRun } from '../cli/run/watch-run.ts';
import { readRunRecord } from '../cli/show/run-record.ts';
import { runTable } from '../cli/show/run-table.ts';
import { REPOSITORY } from '../core/repository.ts';
import { provenance, withStack } from './deployment.ts';
import { optionsOf } from './options.ts';

const { iterations, seeds, file, staleness, agent, lr } = optionsOf(import.meta.url, {
  iterations: 14,
  seeds: 3,
  file: 'quickstart.yaml',
  staleness: 0,
  agent: 'oneshot',
  lr: '',
});
const results = join(REPOSITORY, 'bench/results');
mkdirSync(results, { recursive: true });
const rates = lr.split(',').filter(Boolean).map(Number);
const name = [
  'learning',
  ...(agent === 'oneshot' ? [] : [agent]),
  ...(staleness > 0 ? ['staleness', staleness] : []),
  ...(rates.length > 0 ? ['lr'] : []),
].join('-');
const jsonl = join(results, `${name}.jsonl`);
writeFileSync(jsonl, `${JSON.stringify(provenance())}\n`);
writeFileSync(join(results, `${name}.txt`), `${JSON.stringify(provenance(), null, 2)}\n`);

const curves = (rates.length > 0 ? rates : [null]).flatMap((rate) =>
  Array.from({ length: seeds }, (_, seed) => ({ rate, seed })),
);

await withStack(async (connected, _stack, signal) => {
  for (const { rate, seed } of curves) {
    const run = `learning-${seed}${rate === null ? '' : `-lr-${rate}`}`;
    const config = await readRunFile(join(REPOSITORY, file), {
      iterations,
      seed,
      agents: [agent],
      max_staleness: staleness,
    });
    await startRun(connected.client, run, { ...config, optim: { ...config.optim, lr: rate ?? config.optim.lr } });
    await watchRun(connected, run, signal);
    const record = await readRunRecord(connected.db, run);
    const curve = { seed, ...(rate === null ? {} : { lr: rate }) };
    let minutes = 0;
    for (const { iteration, reward, pass_rate, seconds, metrics } of record.iterations) {
      minutes += Object.values(seconds).reduce((sum, value) => sum + value, 0) / 60;
      appendFileSync(
        jsonl,
        `${JSON.stringify({ ...curve, iteration, reward: reward?.mean, pass_rate, minutes, seconds, metrics })}\n`,
      );
    }
    for (const { policy_version, reward, pass_rate } of record.evaluations) {
      appendFileSync(
        jsonl,
        `${JSON.stringify({ ...curve, evaluation: policy_version, reward: reward?.mean, pass_rate, samples: reward?.count })}\n`,
      );
    }
    const text = `\n${rate === null ? '' : `learning rate ${rate}, `}seed ${seed}\n\n${runTable(record)}\n`;
    console.log(text);
    appendFileSync(join(results, `${name}.txt`), text);
  }
});
