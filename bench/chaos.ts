/**
 * Runs training under random SIGKILLs, SIGSTOPs longer than the heartbeat, full disks and cut connections, on every process. Shows
 * how many runs finish, how long they take to go on, how much work is repeated, and whether invariants 1, 5, 6, 7 and 11 hold in each.
 * PostgreSQL, Temporal, gateway, workers, sandboxes, agents, verifiers, supervisor and trainer are real. The engine is a small
 * process that invents its replies, and the model has some 50,000 random weights.
 *
 * A fault strikes up to 5 s after the run has recovered from the one before; one in four comes with a second one.
 * `went on`: seconds from the fault's end (the kill, SIGCONT, free disk space, the restored link) until the store shows that the
 * run finished something: a trial, a group, a batch, a train step, a publication, an iteration, or itself. `again`: the share of
 * trials or train steps with attempts beyond the first.
 *
 *   node bench/chaos.ts --runs 50 --seed 1
 *
 * A run takes about a minute; --beside 2 runs two at a time. --faults sets the number of faults in a run. --settings 'carry-over|cancel'
 * selects the runs' settings whose names match (bench/chaos/settings.ts), used in turns. --only 'kill (gateway|engine)' selects the faults
 * whose names match. --logs FOLDER keeps the logs of runs in which an invariant does not hold. Results of fewer than 50 runs, or of a
 * selection, are printed but not kept. Ctrl-C ends everything that it started.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { report } from '../cli/exit.ts';
import { REPOSITORY } from '../core/repository.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { Random, seedOf } from '../tests/support/scenarios/fuzz/random.ts';
import { ChaosDeployment } from './chaos/deployment.ts';
import { dealTogether, faultsOf, nameOf } from './chaos/faults.ts';
import { oneRun, type Outcome } from './chaos/one-run.ts';
import { reportOf } from './chaos/report.ts';
import { SETTINGS } from './chaos/settings.ts';
import { SmallDisk } from '../tests/support/harness/small-disk.ts';
import { TrialgateError } from '../core/errors.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';

const {
  runs: count,
  seed,
  faults: perRun,
  iterations,
  settings,
  beside,
  logs,
  only,
} = optionsOf(import.meta.url, {
  runs: 50,
  seed: 1,
  faults: 3,
  iterations: 3,
  settings: '',
  beside: 2,
  logs: null,
  only: '',
});
/** Results of at least this number of runs replace the kept ones. */
const KEPT = 50;
const signal = shutdownSignal();
const start = performance.now();
const refusal = await SmallDisk.refusal();
if (refusal !== null) console.log(`no disk can be full here: ${refusal}`);
const faults = faultsOf({ disks: refusal === null }).filter((fault) => new RegExp(only).test(nameOf(fault)));
const dealt = dealTogether(faults, new Random(seed));
const names = Object.keys(SETTINGS).filter((name) => new RegExp(settings).test(name));
if (names.length === 0)
  process.exit(
    report(
      new TrialgateError('bad_input', `--settings ${settings} matches none of ${Object.keys(SETTINGS).join(', ')}`),
    ),
  );
const plans = Array.from({ length: count }, (_, i) => ({
  run: `chaos-${i + 1}`,
  settings: names[i % names.length] ?? '',
  faults: Array.from({ length: perRun }, () => dealt.next().value),
}));
const outcomes: Outcome[] = [];
const left: string[] = [];

const lane = async (): Promise<void> => {
  let deployment: ChaosDeployment | null = null;
  const drop = async (): Promise<void> => {
    left.push(...((await deployment?.remove()) ?? []));
    deployment = null;
  };
  try {
    for (let plan = plans.shift(); plan && !signal.aborted; plan = plans.shift()) {
      const { run } = plan;
      const log = (line: string) => console.log(`${elapsed()} ${run}: ${line}`);
      deployment ??= await ChaosDeployment.create(signal);
      const outcome = await oneRun(
        deployment,
        { ...plan, iterations, random: new Random(seedOf(seed, run)), log },
        signal,
      );
      outcomes.push(outcome);
      log(
        `${outcome.ended} in ${outcome.seconds.toFixed(0)} s${outcome.broken.map((what) => `\n  ${what}`).join('')}  (${outcomes.length} of ${count})`,
      );
      if (isSound(outcome)) continue;
      if (logs !== null) await deployment.copyLogs(join(logs, run));
      // After a failed run the next one gets a fresh deployment, so that it is not affected.
      await drop();
    }
  } finally {
    await drop();
  }
};
const lanes = await Promise.allSettled(Array.from({ length: Math.min(beside, count) }, lane));
const failures = lanes.flatMap((each) => (each.status === 'rejected' && !signal.aborted ? [String(each.reason)] : []));

const text = [
  `${perRun} faults a run, ${iterations} iterations of 2 groups × 4 trials, ${beside} deployments side by side, seed ${seed}; real trainer with a tiny model, fake engine`,
  ...(refusal === null ? [] : [`without full disks: ${refusal}`]),
  '',
  reportOf(outcomes),
  ...failures.map((each) => `gave up: ${each}`),
  ...left.map((each) => `left running: ${each}`),
  `${elapsed()} in all`,
].join('\n');
console.log(`\n${text}`);
if (!signal.aborted && count >= KEPT && only === '' && settings === '') {
  const folder = join(REPOSITORY, 'bench/results');
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'chaos.txt'), `${JSON.stringify(provenance(), null, 2)}\n\n${text}\n`);
  writeFileSync(
    join(folder, 'chaos.json'),
    `${JSON.stringify({ ...provenance(), seed, faults_a_run: perRun, iterations, beside, outcomes }, null, 1)}\n`,
  );
}
const holds = outcomes.length === count && outcomes.every(isSound) && left.length === 0;
process.exit(signal.aborted ? 130 : holds ? 0 : 1);

function isSound({ ended, broken }: Outcome): boolean {
  return ended === 'completed' && broken.length === 0;
}

function elapsed(): string {
  const seconds = Math.floor((performance.now() - start) / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
}
