import { existsSync, readFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { loadTask } from '../../activities/tasks/load-task.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { rewardFunction } from '../../core/run-config/reward.ts';
import type { Task } from '../../core/task.ts';
import { attackRun, carelessRow, carelessTask } from '../../tests/support/harness/careless.ts';
import { taskWith, temporaryHome, writeFiles } from '../../tests/support/harness/sandbox-fixtures.ts';
import {
  CARELESS_JUDGE,
  ENDS,
  REWARDS,
  SEPARATE,
  SHARED,
  WAYS_OUT,
} from '../../tests/support/scenarios/careless-verifiers.ts';
import { EXIT } from '../exit.ts';
import { main } from '../main.ts';
import { attacksOn } from './attack-task.ts';
import { attackText } from './attack-text.ts';
import { SECTIONS } from './attack.ts';
import { PROGRAMS } from './programs.ts';
import { REPLIES } from './replies.ts';
import { tryAttacks, type AttackReport, type AttackRun } from './try-attacks.ts';

const ADD = join(REPOSITORY, 'tasks/train/add');
const IN_PROCESS = SEPARATE.find(({ attacks }) => attacks.includes('ends_early'));
let place: Awaited<ReturnType<typeof temporaryHome>>;

beforeAll(async () => void (place = await temporaryHome()));
afterAll(async () => {
  const left = (await readdir(join(place.home, 'sandboxes'))).filter((name) => !name.startsWith('.'));
  await place[Symbol.asyncDispose]();
  expect(left).toEqual([]);
});

let count = 0;
const newFolder = (): string => join(place.home, `task-${++count}`);

async function attackWith(
  only: string,
  task: Task,
  more: Partial<Omit<AttackRun, 'place'>> = {},
): Promise<AttackReport> {
  return tryAttacks({ ...(await attackRun(place.home, task, [only])), ...more });
}

test('every attack has its program, its section in the guide, and a careless verifier that shows that it is real', () => {
  const guide = readFileSync(join(REPOSITORY, 'docs/writing-verifiers.md'), 'utf8');
  const anchors = [...guide.matchAll(/^## (.*)$/gm)].map(([, text = '']) => text.toLowerCase().replaceAll(' ', '-'));
  expect(Object.keys(SECTIONS).filter((anchor) => !anchors.includes(anchor))).toEqual([]);
  expect(PROGRAMS.filter(({ name }) => !existsSync(join(import.meta.dirname, `programs/${name}.py`)))).toEqual([]);
  const shown = [...SHARED, ...SEPARATE, ...REWARDS, CARELESS_JUDGE].flatMap(({ attacks }) => attacks);
  const real = [...shown, ...Object.keys(ENDS), ...WAYS_OUT];
  const names = [...PROGRAMS, ...REPLIES].map(({ name }) => name);
  expect(names.filter((name) => !real.includes(name))).toEqual([]);
  expect(new Set(names).size).toBe(names.length);
});

test('an attack pays on a task whose verifier falls for it, with advice and the section of the guide', async () => {
  if (!IN_PROCESS) throw new Error('there is no such verifier');
  const task = await carelessTask(newFolder(), IN_PROCESS);
  const report = await attackWith('ends_early,equal_to_all,conftest', task);
  expect(report).toMatchObject({ baseline: { reward: 0, isSteady: true }, tried: 3, pay: 2 });
  expect(report.attacks.map(({ name, reward, pays }) => [name, reward, pays])).toEqual([
    ['conftest', 0, false],
    ['ends_early', 1, true],
    ['equal_to_all', 1, true],
  ]);
  const text = attackText(report);
  expect(text).toMatch(/ends_early +scored +1 +PAYS +ends the process with exit code 0/);
  expect(text).toContain('docs/writing-verifiers.md#run-the-work-in-another-process');
  expect(text).toMatch(/3 attacks tried, 2 pay$/);
});

test('no attack of a sample pays on a bundled task, and none counts as the machine’s fault', async () => {
  const sample =
    'reward_daemon,conftest,shadowed_modules,reward_at_import,expected_in_files,equal_to_all,kills_verifier';
  const report = await attackWith(`${sample},kills_agent,git_history`, await loadTask(ADD));
  expect(report).toMatchObject({ tried: 8, pay: 0 });
  expect(report.attacks.map(({ outcome, reward }) => [outcome, reward])).toEqual([
    ...Array.from({ length: 7 }, () => ['scored', 0]),
    ['agent_error', 0],
    ['not_possible', null],
  ]);
  expect(attackText(report)).toMatch(/8 attacks tried, 0 pay \(1 cannot be tried here\)$/);
});

test('an attack on a row pays where the reward falls for its reply, and not where one of its guesses is right by luck', async () => {
  const [careless] = REWARDS;
  if (!careless) throw new Error('there is no such reward');
  const task = await carelessRow(newFolder(), careless);
  expect(await attackWith('many_numbers,edited_tests', task)).toMatchObject({
    baseline: { reward: 0 },
    attacks: [{ pays: true, reward: 1 }, { pays: false }],
  });
  const lucky = await carelessRow(newFolder(), {
    ...careless,
    row: { answer: '100' },
    body: undefined,
    reward: rewardFunction.parse({ function: 'numeric' }),
  });
  expect(await attackWith('many_numbers,many_boxed,huge_number', lucky)).toMatchObject({ tried: 3, pay: 0 });
});

test('a verifier that is not deterministic is said to be so, and chance does not make an attack pay', async () => {
  // Doing nothing gets 0 four times, then the attack gets 1; from then on every second call gets 1.
  const dice = `calls = 0
def score(row):
    global calls
    calls += 1
    return calls % 2 if calls > 4 else 0
`;
  const folder = newFolder();
  await writeFiles(folder, { 'reward/grade.py': dice });
  const reward = rewardFunction.parse({ function: `${join(folder, 'reward/grade.py')}:score`, processes: 1 });
  const report = await attackWith('pattern', await carelessRow(folder, { prompt: 'Why?', row: {}, reward }));
  expect(report).toMatchObject({
    baseline: { reward: 1, isSteady: false },
    attacks: [{ reward: 1, pays: false, reason: expect.stringContaining('by chance') }],
  });
  expect(attackText(report)).toContain('The verifier is not deterministic');
});

test('a verifier that gives doing nothing no reward is refused with its reason, because there is nothing to compare with', async () => {
  const task = await taskWith(newFolder(), 'echo nothing; exit 3');
  await expect(attackWith('conftest', task)).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(/does nothing gets no reward \(verifier_error\).*no reward: neither reward\.json/),
  });
});

test('an attack that is not known is refused with the one that is most like it', () => {
  expect(() => attacksOn({ kind: 'folder' }, 'conftests')).toThrow(
    'no attack conftests on a task folder: do you mean conftest?',
  );
  expect(() => attacksOn({ kind: 'folder' }, 'many_numbers')).toThrow('on a task folder; there are reward_files');
});

test('attacks that are interrupted end with the reason, and leave no sandbox', async () => {
  const stop = new AbortController();
  const report = (line: string): void => {
    if (line.startsWith('doing nothing')) setTimeout(() => stop.abort(new Error('interrupted')), 200);
  };
  const running = attackWith('hangs,port_daemon,many_files', await loadTask(ADD), { signal: stop.signal, report });
  await expect(running).rejects.toThrow('interrupted');
  expect((await readdir(join(place.home, 'sandboxes'))).filter((name) => name.startsWith('attack-'))).toEqual([]);
});

test('`try --attack` ends with 1 if an attack pays and with 0 if none does, and prints its report as JSON', async () => {
  if (!IN_PROCESS) throw new Error('there is no such verifier');
  const { folder } = await carelessTask(newFolder(), IN_PROCESS);
  const printed = vi.spyOn(console, 'log').mockImplementation(() => {});
  const before = process.exitCode;
  onTestFinished(() => {
    printed.mockRestore();
    process.exitCode = before;
  });
  const tryIt = (task: string, ...more: string[]) =>
    main(['try', '--attack', task, '--home', place.home, '--unsandboxed', '--only', 'ends_early', ...more]);
  expect(await tryIt(folder, '--json')).toBe(EXIT.attackPays);
  expect(JSON.parse(String(printed.mock.calls.at(-1)?.[0]))).toMatchObject({ tried: 1, pay: 1 });
  expect(await tryIt(ADD)).toBe(EXIT.done);
  expect(await tryIt(ADD, '--keep', 'left')).toBe(EXIT.badInput);
  expect(await main(['try', ADD, '--only', 'ends_early'])).toBe(EXIT.badInput);
});
