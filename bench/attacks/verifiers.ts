/**
 * Tries the attacks of `trialgate try --attack` on every bundled task and every bundled reward, and on verifiers that are careless on purpose,
 * which shows that each attack is real.
 *
 *   node bench/attacks/verifiers.ts [--tasks 16]
 *
 * Exits with 1 if an attack pays on a bundled task or reward, if one counts as the machine's fault, or if one has no effect on the careless
 * verifiers. `--tasks` is the number of bundled tasks. It needs bubblewrap and, for conftest and pytest_settings, the installed Python.
 */
import { chmodSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { listFolder } from '../../activities/tasks/list-tasks.ts';
import { loadTask } from '../../activities/tasks/load-task.ts';
import { attacksOn } from '../../cli/attack/attack-task.ts';
import { tryAttacks, type AttackReport, type AttackRun } from '../../cli/attack/try-attacks.ts';
import { shutdownSignal } from '../../cli/signals.ts';
import { table } from '../../cli/show/table.ts';
import { REPOSITORY } from '../../core/repository.ts';
import type { Task } from '../../core/task.ts';
import { startGullibleJudge } from '../../tests/support/fakes/gullible-judge.ts';
import {
  attackRun,
  bundledRows,
  carelessRow,
  carelessTask,
  judgeInPlace,
  openProxy,
} from '../../tests/support/harness/careless.ts';
import {
  CARELESS_JUDGE,
  ENDS,
  REWARDS,
  SEPARATE,
  SHARED,
  WAYS_OUT,
} from '../../tests/support/scenarios/careless-verifiers.ts';
import { provenance } from '../deployment.ts';
import { optionsOf } from '../options.ts';

const { tasks: mostTasks } = optionsOf(import.meta.url, { tasks: 16 });
const signal = shutdownSignal();
await using stack = new AsyncDisposableStack();
const home = await mkdtemp(join(tmpdir(), 'trialgate-verifiers-'));
chmodSync(home, 0o755);
stack.defer(() => rm(home, { recursive: true, force: true }));
const judge = stack.use(await startGullibleJudge());

let folders = 0;
const newFolder = (): string => join(home, `task-${++folders}`);
const attack = async (
  task: Task,
  only?: readonly string[],
  more: Partial<Omit<AttackRun, 'place'>> = {},
): Promise<AttackReport> => {
  console.error(`${task.name} …`);
  return tryAttacks({ ...(await attackRun(home, task, only)), signal, ...more });
};

/** What each attack did: how often it was tried on what is bundled, and what it was worth on a careless verifier. */
type Row = { tried: number; pays: string[]; unscored: string[]; careless: string };
const rows = new Map<string, Row>(
  attacksOn({ kind: 'row' }).map(({ name }) => [name, { tried: 0, pays: [], unscored: [], careless: 'NO EFFECT' }]),
);
const rowOf = (name: string): Row => {
  const row = rows.get(name);
  if (!row) throw new Error(`there is no attack ${name}`);
  return row;
};

// What is bundled.
const bundled = [
  ...(await listFolder(join(REPOSITORY, 'tasks/train'))),
  ...(await listFolder(join(REPOSITORY, 'tasks/eval'))),
].slice(0, mostTasks);
const tasks: Task[] = [
  ...(await Promise.all(bundled.map((folder) => loadTask(folder)))),
  ...(await bundledRows(newFolder(), judge.url)),
];
for (const task of tasks)
  for (const { name, outcome, pays } of (await attack(task)).attacks) {
    if (outcome === 'not_possible') continue;
    const row = rowOf(name);
    row.tried += 1;
    const where = task.kind === 'folder' ? basename(task.folder) : task.name;
    if (pays) row.pays.push(where);
    if (outcome === 'infra_error' || outcome === 'verifier_error') row.unscored.push(`${where}: ${outcome}`);
  }

// What is careless.
for (const given of SHARED) {
  const task = await carelessTask(newFolder(), given);
  for (const name of given.attacks) {
    const reward = await judgeInPlace({ home, task, shell: given.shell }, name);
    if (reward === (given.isBroken ? null : 1)) rowOf(name).careless = given.isBroken ? 'no reward' : 'pays';
  }
}
for (const given of SEPARATE) await careless(await carelessTask(newFolder(), given), given);
for (const given of REWARDS) await careless(await carelessRow(newFolder(), given), given);
await careless(await carelessRow(newFolder(), { ...CARELESS_JUDGE, row: { url: judge.url } }), CARELESS_JUDGE);
const [first] = await Promise.all(bundled.slice(0, 1).map((folder) => loadTask(folder)));
if (first) {
  for (const { name, reason } of (await attack(first, Object.keys(ENDS))).attacks)
    if (ENDS[name]?.test(reason ?? '')) rowOf(name).careless = 'its end looks like the machine’s';
  const proxy = stack.use(await openProxy());
  await careless(
    first,
    { attacks: WAYS_OUT },
    { network: 'host', outside: { metadata: [proxy.service] }, gateway: proxy.url },
  );
}

async function careless(
  task: Task,
  given: { attacks: readonly string[]; isBroken?: true },
  more: Partial<AttackRun> = {},
): Promise<void> {
  for (const { name, pays, reason } of (await attack(task, given.attacks, more)).attacks) {
    if (pays) rowOf(name).careless = 'pays';
    else if (given.isBroken && /works on (the untouched task|an empty reply)/.test(reason ?? ''))
      rowOf(name).careless = 'no reward';
  }
}

const all = [...rows];
const count = (of: (row: Row) => number): number => all.reduce((sum, [, row]) => sum + of(row), 0);
const pay = count(({ pays }) => pays.length);
const unscored = count(({ unscored: each }) => each.length);
const withoutEffect = count((row) => (row.careless === 'NO EFFECT' ? 1 : 0));
console.log(JSON.stringify(provenance(), null, 2));
console.log(
  `\n${table(
    ['attack', 'tried on', 'pays on', 'not scored', 'a careless verifier'],
    all.map(([name, row]) => [
      name,
      String(row.tried),
      String(row.pays.length),
      String(row.unscored.length),
      row.careless,
    ]),
  )}`,
);
for (const [name, { pays, unscored: each }] of all)
  for (const where of [...pays.map((place) => `pays on ${place}`), ...each]) console.log(`${name}: ${where}`);
console.log(
  `\n${all.length} attacks, tried ${count(({ tried }) => tried)} times on ${bundled.length} bundled tasks and ${tasks.length - bundled.length} bundled rewards: ` +
    `${pay} pay, ${unscored} not scored. On careless verifiers ${all.length - withoutEffect} of ${all.length} have their effect`,
);
if (pay + unscored + withoutEffect > 0) process.exitCode = 1;
