import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { gradeRow } from '../../activities/reward/grade-row.ts';
import { Graders } from '../../activities/reward/graders.ts';
import { openBackend } from '../../activities/sandbox/backends.ts';
import { createSandbox } from '../../activities/sandbox/create-sandbox.ts';
import { destroySandbox } from '../../activities/sandbox/destroy-sandbox.ts';
import { isolation } from '../../activities/sandbox/isolation.ts';
import { listFolder } from '../../activities/tasks/list-tasks.ts';
import { loadTask } from '../../activities/tasks/load-task.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { rewardFunction } from '../../core/run-config/reward.ts';
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
import { temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import {
  CARELESS_JUDGE,
  ENDS,
  REWARDS,
  SEPARATE,
  SHARED,
  WAYS_OUT,
} from '../../tests/support/scenarios/careless-verifiers.ts';
import { REPLIES } from './replies.ts';
import { tryAttacks, type AttackReport, type AttackRun } from './try-attacks.ts';

let place: Awaited<ReturnType<typeof temporaryHome>>;

beforeAll(async () => void (place = await temporaryHome()));
afterAll(async () => {
  const left = (await readdir(join(place.home, 'sandboxes'))).filter((name) => !name.startsWith('.'));
  await place[Symbol.asyncDispose]();
  expect(left).toEqual([]);
});

let count = 0;
const newFolder = (): string => join(place.home, `task-${++count}`);
const titled = <T extends { attacks: readonly string[] }>(all: readonly T[]) =>
  all.map((given): [string, T] => [given.attacks.join(', '), given]);

async function attackWith(
  only: readonly string[] | undefined,
  task: Task,
  more: Partial<Omit<AttackRun, 'place'>> = {},
): Promise<AttackReport> {
  return tryAttacks({ ...(await attackRun(place.home, task, only)), ...more });
}

describe('a careless verifier', () => {
  test.each(titled(SHARED))(
    'that judges in the agent’s own sandbox pays for %s, and Trialgate does not',
    async (_, given) => {
      const task = await carelessTask(newFolder(), given);
      const run = { home: place.home, task, shell: given.shell };
      expect(await judgeInPlace(run, null)).toBe(0);
      for (const attack of given.attacks)
        expect([attack, await judgeInPlace(run, attack)]).toEqual([attack, given.isBroken ? null : 1]);
      const { attacks } = await attackWith(given.attacks, task);
      expect(attacks.filter(({ outcome, reward }) => outcome !== 'scored' || reward !== 0)).toEqual([]);
    },
  );

  const separate = SEPARATE.filter(
    ({ needsPytest }) => !needsPytest || existsSync(join(REPOSITORY, '.trialgate/venv')),
  );
  test.each(titled(separate.filter(({ isBroken }) => !isBroken)))(
    'pays for %s also in a clean sandbox',
    async (_, given) => {
      const { attacks } = await attackWith(given.attacks, await carelessTask(newFolder(), given));
      const expected = given.attacks.map((name) => ({ name, outcome: 'scored', reward: 1, pays: true }));
      expect(attacks.map(({ name, outcome, reward, pays }) => ({ name, outcome, reward, pays }))).toEqual(
        expect.arrayContaining(expected),
      );
    },
  );

  test.each(titled(separate.filter(({ isBroken }) => isBroken)))(
    'is broken by %s, which is scored as 0',
    async (_, given) => {
      const { attacks } = await attackWith(given.attacks, await carelessTask(newFolder(), given));
      const reason = expect.stringContaining('judges the untouched task');
      const expected = given.attacks.map((name) => ({ name, outcome: 'scored', reward: 0, reason }));
      expect(attacks.map(({ name, outcome, reward, reason: why }) => ({ name, outcome, reward, reason: why }))).toEqual(
        expect.arrayContaining(expected),
      );
    },
  );
});

describe('a careless reward of a row', () => {
  test.each(titled(REWARDS.filter(({ isBroken }) => !isBroken)))('pays for %s', async (_, given) => {
    const { attacks } = await attackWith(given.attacks, await carelessRow(newFolder(), given));
    expect(attacks.map(({ name, pays }) => [name, pays])).toEqual(given.attacks.map((name) => [name, true]));
  });

  test.each(titled(REWARDS.filter(({ isBroken }) => isBroken)))(
    'is broken by %s, which is scored as 0',
    async (_, given) => {
      const { attacks } = await attackWith(given.attacks, await carelessRow(newFolder(), given));
      const reason = expect.stringContaining('works on an empty reply');
      expect(attacks).toEqual([expect.objectContaining({ outcome: 'scored', reward: 0, reason })]);
    },
  );

  test('pays for instructions to its judge and for forged verdicts, where the bundled judge does not', async () => {
    const judge = await startGullibleJudge();
    onTestFinished(() => judge[Symbol.asyncDispose]());
    const careless = await carelessRow(newFolder(), { ...CARELESS_JUDGE, row: { url: judge.url } });
    expect(await attackWith(CARELESS_JUDGE.attacks, careless)).toMatchObject({ tried: 3, pay: 3 });
    const options = { url: judge.url, model: 'm', rubric: 'Is the reply right?' };
    const reward = rewardFunction.parse({ function: 'judge', options });
    const bundled = await carelessRow(newFolder(), { prompt: 'Why is the sky blue?', row: {}, reward });
    expect(await attackWith(CARELESS_JUDGE.attacks, bundled)).toMatchObject({ tried: 3, pay: 0 });
  });
});

test('an attack whose agent is killed or fills its disk ends as the agent’s own error, and is scored', async () => {
  const report = await attackWith(Object.keys(ENDS), await loadTask(join(REPOSITORY, 'tasks/train/add')));
  for (const { name, outcome, reward, reason } of report.attacks) {
    expect({ name, outcome, reward }).toEqual({ name, outcome: 'agent_error', reward: 0 });
    expect(reason).toMatch(ENDS[name] ?? /^$/);
  }
});

const here = await isolation();
test.skipIf(here.kind !== 'bubblewrap')(
  'every way out pays where the sandbox has the machine’s network and the gateway is a proxy, and none does with `network: gateway`',
  async () => {
    const proxy = await openProxy();
    onTestFinished(() => proxy[Symbol.asyncDispose]());
    const task = await loadTask(join(REPOSITORY, 'tasks/train/add'));
    const outside = { metadata: [proxy.service] };
    const open = await attackWith(WAYS_OUT, task, { network: 'host', outside, gateway: proxy.url });
    expect(open.attacks.map(({ name, pays, reason }) => [name, pays, reason])).toEqual(
      WAYS_OUT.map((name) => [name, true, expect.stringMatching(/^it reached /)]),
    );
    expect(await attackWith(WAYS_OUT, task)).toMatchObject({ tried: WAYS_OUT.length, pay: 0 });
  },
);

test('no attack pays on a bundled task, and none counts as the machine’s fault', async () => {
  const folders = await listFolder(join(REPOSITORY, 'tasks/eval'));
  const folder = folders.find((path) => basename(path) === 'is-positive') ?? '';
  const report = await attackWith(undefined, await loadTask(folder));
  expect(report.attacks.filter(({ pays }) => pays)).toEqual([]);
  expect(report.attacks.filter(({ outcome }) => /infra|verifier/.test(outcome))).toEqual([]);
});

test('no attack pays on a bundled reward, and none counts as the machine’s fault', async () => {
  const judge = await startGullibleJudge();
  onTestFinished(() => judge[Symbol.asyncDispose]());
  const replies = REPLIES.map(({ name }) => name);
  const results = [];
  for (const task of await bundledRows(newFolder(), judge.url)) {
    // Programs leave files, which no bundled reward reads: what matters is that they cannot break the copying of files.
    const { attacks } = await attackWith(task.name === 'numeric' ? undefined : replies, task);
    results.push(...attacks.map(({ name, outcome, pays }) => ({ reward: task.name, name, outcome, pays })));
  }
  expect(results.filter(({ pays }) => pays)).toEqual([]);
  expect(results.filter(({ outcome }) => /infra|verifier/.test(outcome))).toEqual([]);
});

test('math_equal takes another form of the answer for right, and what was not computed for wrong', async () => {
  const graders = new Graders(place.home);
  onTestFinished(() => graders.close());
  const backend = await openBackend();
  const sandbox = await createSandbox({
    home: place.home,
    trialId: 'math',
    attempt: 1,
    task: await mathRow('', ''),
    backend,
  });
  onTestFinished(() => destroySandbox({ home: place.home, trialId: 'math', attempt: 1, backend }));
  for (const [prompt, answer, reply, expected] of MATH) {
    const task = await mathRow(prompt, answer);
    const transcript = [...task.messages, { role: 'assistant', content: reply }];
    const { rewards } = await gradeRow(task, { sandbox, transcript, graders }, new AbortController().signal);
    expect({ reply, ...rewards }).toEqual({ reply, reward: expected });
  }
});

const mathRow = (prompt: string, answer: string) =>
  carelessRow(newFolder(), { prompt, row: { answer }, reward: rewardFunction.parse({ function: 'math_equal' }) });

const MATH: [prompt: string, answer: string, reply: string, reward: number][] = [
  ['What is $6 \\cdot 7$?', '42', '$6 \\cdot 7 = 42$', 1],
  ['What is $6 \\cdot 7$?', '42', '$x = 42$', 1],
  ['What is $6 \\cdot 7$?', '42', '\\boxed{4.2 \\times 10^1}', 1],
  ['What is $6 \\cdot 7$?', '42', '$6 \\cdot 7$', 0],
  ['What is $6 \\cdot 7$?', '42', '\\boxed{7 \\cdot 6 + 0}', 0],
  ['What is $\\frac{84}{2}$?', '42', '\\boxed{\\frac{84}{2}}', 0],
  ['What is a half?', '\\frac{1}{2}', '\\boxed{50\\%}', 1],
  ['Is it $(1, 2)$ or $(3, 4)$?', '(3, 4)', '\\boxed{(3,4)}', 1],
  ['Expand $(x+1)(x+2)$.', 'x^2+3x+2', '$2 + x^2 + 3x$', 1],
  ['Expand $(x+1)(x+2)$.', 'x^2+3x+2', '$(x+1)(x+2)$', 0],
];
