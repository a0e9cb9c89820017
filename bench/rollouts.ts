/** Measures rollouts under a heavy tail, and how their workflows' histories grow. See --help. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { EXIT, report as reportFailure } from '../cli/exit.ts';
import { REPOSITORY } from '../core/repository.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { TrialgateError } from '../core/errors.ts';
import { provenance } from './deployment.ts';
import { policiesAt } from './rollouts/policies.ts';
import { simulate } from './rollouts/simulate/cell.ts';
import { iterationReport, oneIteration, type IterationRow } from './rollouts/temporal/iteration-cell.ts';
import { policyReport } from './rollouts/temporal/policy-report.ts';
import { runPolicy, type PolicyRow } from './rollouts/temporal/policy-run.ts';
import { longRun, longRunReport } from './rollouts/temporal/run-cell.ts';
import { AIM } from './rollouts/temporal/histories.ts';
import { withStage, type Stage } from './rollouts/temporal/stage.ts';

const CELLS = ['simulate', 'policies', 'iteration', 'run'] as const;

const HELP = `Rollouts under a heavy tail: how much of 64 engine slots' time ends in trained samples, by policy, beside an oracle.

  node bench/rollouts.ts [--cells simulate,policies,iteration,run] [--json]

  simulate   every policy over the same drawn trials, an oracle that knows how long each takes, and ceilings
               --steps 400  --seeds 3  --median 60 (seconds; only scales the table)  --shared 0 (of the variance within a group)
  policies   the real workflows, store and sandboxes on a Temporal server, with agents that hold a slot for the drawn time,
             beside what the simulation says of the very same trials
               --real-steps 20  --warm-up 3  --real-median 8  --only 'NAME;NAME'  --limits 0,1,2
  iteration  one iteration of groups x trials with agents of a fixed time: histories' events and bytes, what is busy
               --shapes 8x16,32x16,128x16  --in-flight 64,1024  --agent 20
  run        a run of many small iterations whose trials take no time
               --iterations 1000  --shape 2x2

Results go to bench/results/rollouts-CELL.txt and .json. It exits with 4 when a history passes ${AIM.events} events or ${AIM.bytes / 1e6} MB, or a
trial was left without an outcome.`;

const text = (value: string) => ({ type: 'string', default: value }) as const;

function optionsOf() {
  const { values } = parseArgs({
    options: {
      cells: text(CELLS.join(',')),
      steps: text('400'),
      seeds: text('3'),
      median: text('60'),
      shared: text('0'),
      'real-steps': text('20'),
      'warm-up': text('3'),
      'real-median': text('8'),
      only: { type: 'string' },
      limits: text('0,1,2'),
      shapes: text('8x16,32x16,128x16'),
      'in-flight': text('64,1024'),
      agent: text('20'),
      iterations: text('1000'),
      shape: text('2x2'),
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  const number = (
    name: 'steps' | 'seeds' | 'median' | 'shared' | 'real-steps' | 'warm-up' | 'real-median' | 'agent' | 'iterations',
  ) => {
    const value = Number(values[name]);
    if (!(value >= 0))
      throw new TrialgateError('bad_input', `--${name}: expected a number from 0, found ${values[name]}`);
    return value;
  };
  const cells = values.cells.split(',');
  const unknown = cells.find((cell) => !CELLS.some((each) => each === cell));
  if (unknown !== undefined) throw new TrialgateError('bad_input', `there is no cell ${unknown}: ${CELLS.join(', ')}`);
  return { ...values, cells, number };
}

function shapeOf(name: string): { groups: number; size: number } {
  const [, groups, size] = /^(\d+)x(\d+)$/.exec(name) ?? [];
  if (groups === undefined || size === undefined)
    throw new TrialgateError('bad_input', `a shape is GROUPSxTRIALS, found ${name}`);
  return { groups: Number(groups), size: Number(size) };
}

type Options = ReturnType<typeof optionsOf>;

async function main(): Promise<void> {
  const options = optionsOf();
  if (options.help) return console.log(HELP);
  const signal = shutdownSignal();
  const results: Record<string, unknown> = { ...provenance() };
  const wrong: string[] = [];
  const progress = (line: string) => console.error(`${new Date().toISOString().slice(11, 19)} ${line}`);
  const keep = (cell: string, data: unknown, table: string) => {
    results[cell] = data;
    if (!options.json) console.log(`\n## ${cell}\n\n${table}`);
    write(cell, data, table);
  };

  if (options.cells.includes('simulate')) {
    const { text: table, ...data } = simulate({
      steps: options.number('steps'),
      seeds: options.number('seeds'),
      medianSeconds: options.number('median'),
      shared: options.number('shared'),
      progress,
    });
    keep('simulate', data, table);
  }
  const real = options.cells.filter((cell) => cell !== 'simulate');
  if (real.length > 0) {
    await withStage(signal, async (stage) => {
      for (const cell of real)
        await CELL[cell as Exclude<(typeof CELLS)[number], 'simulate'>](stage, options, progress, keep, wrong);
    });
  }
  if (options.json) console.log(JSON.stringify(results, null, 1));
  for (const line of wrong) console.error(`error: ${line}`);
  if (wrong.length > 0) process.exitCode = EXIT.failed;
}

type Cell = (
  stage: Stage,
  options: Options,
  progress: (line: string) => void,
  keep: (cell: string, data: unknown, table: string) => void,
  wrong: string[],
) => Promise<void>;

const CELL: Record<Exclude<(typeof CELLS)[number], 'simulate'>, Cell> = {
  async policies(stage, options, progress, keep) {
    const only = options.only?.split(';');
    const settings = {
      steps: options.number('real-steps'),
      warmUp: options.number('warm-up'),
      medianSeconds: options.number('real-median'),
      seed: 1,
    };
    const rows: PolicyRow[] = [];
    for (const limit of options.limits.split(',').map(Number)) {
      for (const policy of policiesAt(limit).filter(({ name }) => !only || only.includes(name))) {
        progress(`${policy.name}, staleness ${limit}`);
        rows.push(await runPolicy(stage, policy, settings));
        keep('policies', { ...settings, rows }, policyReport(rows, settings));
      }
    }
  },
  async iteration(stage, options, progress, keep, wrong) {
    const rows: IterationRow[] = [];
    for (const inFlight of options['in-flight'].split(',').map(Number)) {
      for (const shape of options.shapes.split(',').map(shapeOf)) {
        progress(`one iteration of ${shape.groups} x ${shape.size}, room for ${inFlight}`);
        const row = await oneIteration(stage, { ...shape, inFlight, agentSeconds: options.number('agent') });
        rows.push(row);
        if (row.unfinished > 0)
          wrong.push(`${row.unfinished} trials of ${shape.groups} x ${shape.size} have no outcome`);
        wrong.push(...tooLong(row.histories));
        keep('iteration', rows, iterationReport(rows));
      }
    }
  },
  async run(stage, options, progress, keep, wrong) {
    const iterations = options.number('iterations');
    progress(`a run of ${iterations} iterations`);
    const row = await longRun(stage, { ...shapeOf(options.shape), iterations });
    wrong.push(...tooLong(row.histories));
    keep('run', row, longRunReport(row));
  },
};

const tooLong = (rows: IterationRow['histories']): string[] =>
  rows.flatMap(({ workflow, events, bytes }) =>
    events.most > AIM.events || bytes.most > AIM.bytes
      ? [`a history of ${workflow} has ${events.most} events and ${bytes.most} bytes`]
      : [],
  );

function write(cell: string, data: unknown, table: string): void {
  const folder = join(REPOSITORY, 'bench/results');
  mkdirSync(folder, { recursive: true });
  writeFileSync(
    join(folder, `rollouts-${cell}.json`),
    `${JSON.stringify({ ...provenance(), [cell]: data }, null, 1)}\n`,
  );
  writeFileSync(join(folder, `rollouts-${cell}.txt`), `${JSON.stringify(provenance(), null, 2)}\n\n${table}\n`);
}

try {
  await main();
} catch (error) {
  process.exitCode = reportFailure(error);
}
