import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { mkdirSync, truncateSync, writeFileSync } from 'node:fs';
import { judgeWork } from './judge-work.ts';
import { markerOf, verifierName } from './names.ts';
import { MARKER } from './kill-tree.ts';
import { processesWith } from './process-table.ts';
import { sandboxWith, taskWith, temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { openBackend } from './backends.ts';

const backend = await openBackend();

/** A number stands for a sparse file of that many bytes. */
type Files = Record<string, string | Buffer | number>;

async function workOf(script: string, files: Files) {
  const folder = await temporaryHome();
  onTestFinished(() => folder[Symbol.asyncDispose]());
  const task = await taskWith(folder.home, script);
  const sandbox = await sandboxWith(folder.home, {}, task);
  for (const [name, content] of Object.entries(files)) {
    const path = join(sandbox.work, name);
    writeFileSync(path, typeof content === 'number' ? '' : content);
    if (typeof content === 'number') truncateSync(path, content);
  }
  return { task, sandbox };
}

async function judge(script: string, files: Files = {}) {
  const { task, sandbox } = await workOf(script, files);
  const judged = judgeWork({ task, sandbox, backend, signal: new AbortController().signal });
  await judged.catch(() => {});
  // Neither the clean copies nor the control's sandbox remains.
  expect((await readdir(join(sandbox.home, 'sandboxes'))).filter((name) => /verify|control/.test(name))).toEqual([]);
  return judged;
}

const reward = (value: string) => `echo ${value} > $LOGS_DIR/verifier/reward.txt`;

test('a verifier that was killed by something outside its sandbox runs again in a fresh one, and a right solution keeps its reward', async () => {
  const { task, sandbox } = await workOf(
    `test -f $WORK_DIR/seen && exit 1; touch $WORK_DIR/seen; sleep 0.5; ${reward('1')}`,
    {},
  );
  const judged = judgeWork({ task, sandbox, backend, signal: new AbortController().signal });
  const ofVerifier = () => processesWith(`${MARKER}=${markerOf(sandbox.home, verifierName(sandbox.name))}`);
  const script = async () => {
    for (const pid of ofVerifier())
      if ((await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '')).startsWith('bash\0')) return pid;
    return null;
  };
  let pid = await script();
  for (; pid === null; pid = await script()) await sleep(5);
  process.kill(pid, 'SIGKILL');
  expect(await judged).toMatchObject({ rewards: { reward: 1 } });
});

test.each([
  ['kills its verifier', 'kill -9 $$', /killed by SIGKILL/],
  ['ends its verifier before it has written a reward', 'exit 0', /no reward/],
  ['makes its verifier hang', 'sleep 60', /timed_out/],
  ['makes its verifier print too much', 'yes', /output_limit/],
])('a solution that %s gets 0 for every reward that the verifier names', async (_, breaks, reason) => {
  const script = `test -f $WORK_DIR/breaks && { ${breaks}; }; echo '{"tests": [0, 0.25], "style": 1}' > $LOGS_DIR/verifier/reward.json`;
  expect(await judge(script, { breaks: '' })).toMatchObject({
    rewards: { tests: 0, style: 0 },
    turnRewards: undefined,
    reason: expect.stringMatching(reason),
  });
});

test.each([
  [1, 1],
  [128, 1],
  [129, 0],
  [137, 0],
  [159, 0],
  [160, 1],
  [255, 1],
])(
  'a verifier that writes a reward of 1 and ends with exit code %d gives %d: codes of signals drop what was written',
  async (code, expected) => {
    const script = `test -f $WORK_DIR/breaks || { ${reward('0')}; exit 0; }; ${reward('1')}; exit ${code}`;
    expect(await judge(script, { breaks: '' })).toMatchObject({ rewards: { reward: expected } });
  },
);

test.each<[string, string | Buffer]>([
  ['10**400', `1${'0'.repeat(400)}`],
  ['1e39', '1e39'],
  ['NaN', 'NaN'],
  ['inf', 'inf'],
  ['a number of 1 MB', `0.${'1'.repeat(1_000_000)}`],
  ['bytes that are not UTF-8', Buffer.from([0x30, 0x2e, 0x35, 0xff])],
])('a solution that makes its verifier write %s as the reward gets a reward of 0', async (_, said) => {
  expect(
    await judge(`${reward('0.5')}; cp $WORK_DIR/said $LOGS_DIR/verifier/reward.txt; true`, { said }),
  ).toMatchObject({ rewards: { reward: 0 } });
});

test('a solution with more bytes than the verifier’s sandbox may hold gets a reward of 0', async () => {
  expect(await judge(reward('1'), { large: 2 ** 30 })).toMatchObject({
    rewards: { reward: 0 },
    reason: expect.stringContaining('more than'),
  });
});

test('a solution is verified as usual when its folder has files and folders whose names are not UTF-8', async () => {
  const { task, sandbox } = await workOf(`test -f $WORK_DIR/answer && ${reward('1')}`, { answer: '' });
  const folder = Buffer.concat([Buffer.from(`${sandbox.work}/`), Buffer.from([0xff, 0xfe])]);
  mkdirSync(folder);
  writeFileSync(Buffer.concat([folder, Buffer.from('/'), Buffer.from([0xc3])]), '');
  expect(await judgeWork({ task, sandbox, backend, signal: new AbortController().signal })).toMatchObject({
    rewards: { reward: 1 },
  });
});

test.each(['kill -9 $$', reward('two'), 'exit 3'])(
  'a trial whose verifier fails on the untouched task too (%s) ends with a verifier error, not with a reward',
  async (script) => {
    await expect(judge(script)).rejects.toThrow(/; of the untouched task: the same$/);
  },
);

test('work that breaks its verifier earns no more than the untouched task, where that earns less than 0', async () => {
  const script = `test -f $WORK_DIR/said && exit 3; ${reward('-2')}`;
  expect(await judge(script, { said: 'anything' })).toMatchObject({ rewards: { reward: -2 } });
});
