import { readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { createSandbox } from '../activities/sandbox/create-sandbox.ts';
import { isolation } from '../activities/sandbox/isolation.ts';
import { temporaryHome, writeFiles } from '../tests/support/harness/sandbox-fixtures.ts';
import { verify, type Verdict } from '../activities/sandbox/verify.ts';
import { listFolder } from '../activities/tasks/list-tasks.ts';
import { loadTask } from '../activities/tasks/load-task.ts';
import { SOLUTIONS } from './solutions.ts';
import { openBackend } from '../activities/sandbox/backends.ts';
import { bubblewrapBackend } from '../activities/sandbox/bubblewrap-backend.ts';

const backend = await openBackend();

const folders = [...(await listFolder('tasks/train')), ...(await listFolder('tasks/eval'))];
const here = await isolation();

async function judge(folder: string, solution: string): Promise<Verdict> {
  await using place = await temporaryHome();
  const task = await loadTask(folder);
  const sandbox = await createSandbox({ backend, home: place.home, trialId: 't', attempt: 1, task });
  await writeFiles(sandbox.work, { 'solution.py': solution });
  return await verify({ task, sandbox, backend: bubblewrapBackend(here), signal: new AbortController().signal });
}

const reward = async (solution: string, folder = 'tasks/train/add'): Promise<number> =>
  (await judge(folder, solution)).rewards.reward ?? -1;

beforeAll(() => judge('tasks/train/add', ''));

test('tasks/ has at least 12 training tasks and 4 held-out ones, and no task is both', async () => {
  const [train, held] = [await listFolder('tasks/train'), await listFolder('tasks/eval')].map((list) =>
    list.map((path) => basename(path)),
  );
  expect(train?.length).toBeGreaterThanOrEqual(12);
  expect(held?.length).toBeGreaterThanOrEqual(4);
  expect(train?.filter((name) => held?.includes(name))).toEqual([]);
});

test.each(['tests/run.py', 'tests/test.sh', 'environment/Dockerfile'])(
  '%s is the same in every task of tasks/',
  async (file) => {
    const texts = await Promise.all(folders.map((folder) => readFile(join(folder, file), 'utf8')));
    expect(new Set(texts).size).toBe(1);
  },
);

test.each(folders)(
  'the task %s can be solved, and its visible test shows at most half as many cases as its verifier has',
  async (folder) => {
    const solution = SOLUTIONS[basename(folder)];
    if (!solution) throw new Error(`no solution for ${folder}`);
    expect(await reward(solution, folder)).toBe(1);
    expect(await reward('', folder)).toBe(0);
    const visible = await readFile(join(folder, 'environment/test_visible.py'), 'utf8');
    const hidden: { cases: unknown[] } = JSON.parse(await readFile(join(folder, 'tests/cases.json'), 'utf8'));
    expect(visible.split('\nassert ').length - 1).toBeLessThanOrEqual(hidden.cases.length / 2);
  },
);

test('a solution that returns a number too large for a float fails the case', async () => {
  expect(await reward('def average(numbers): return 10**400', 'tasks/eval/average')).toBe(0);
});

test('a solution that is right for some of the verifier’s cases gets their share as its reward', async () => {
  expect(await reward('def add(a, b): return abs(a + b)')).toBeCloseTo(5 / 6, 5);
});

test('a solution that exits in one of the verifier’s cases loses that case only', async () => {
  expect(await reward('import os\ndef add(a, b):\n    if a == 0: os._exit(0)\n    return a + b')).toBeCloseTo(5 / 6, 5);
  expect(await reward('def add(a, b):\n    if a == 0: raise SystemExit\n    return a + b')).toBeCloseTo(5 / 6, 5);
  expect(await reward('import os\nos._exit(0)')).toBe(0);
});

test.each([
  ['def add(a, b):\n    while a == 0: pass\n    return a + b', 5 / 6],
  ['import time\ndef add(a, b):\n    if a == 0: time.sleep(60)\n    return a + b', 5 / 6],
  ['import time\ndef add(a, b): time.sleep(60)', 0],
  ['def add(a, b):\n    while True: pass', 0],
  ['while True: pass', 0],
])('the solution %j loses only the cases of the verifier in which it hangs', async (solution, share) => {
  const { rewards } = await judge('tasks/train/add', solution);
  expect(rewards.reward).toBeCloseTo(share, 5);
});

test('a solution that takes too much memory in one of the verifier’s cases loses that case only', async () => {
  expect(await reward('def add(a, b):\n    if a == 0: return len([0] * 10**10)\n    return a + b')).toBeCloseTo(
    5 / 6,
    5,
  );
  expect(await reward('x = []\nwhile True: x.append(bytearray(10**7))')).toBe(0);
});

test('a solution with endless recursion, or with results that are no plain values, gets a reward of 0', async () => {
  expect(await reward('def add(a, b): return add(a, b)')).toBe(0);
  expect(await reward('def add(a, b): return lambda: 1')).toBe(0);
  expect(await reward('def add(a, b): return "9" * 10**7')).toBe(0);
  expect(await reward('def add(a, b):\n    x = []\n    for i in range(10**5): x = [x]\n    return x')).toBe(0);
});

test('a right solution gets its reward although its last line reads input, which there is not', async () => {
  expect(await reward('def add(a, b): return a + b\nprint(add(int(input()), 1))')).toBe(1);
});

test('a solution that only prints the expected results gets a reward of 0', async () => {
  const shout =
    'import sys\nfor fd in (1, 2):\n    open(fd, "w", closefd=False).write("loaded\\n5\\n6\\n0\\n-12\\n350\\n0\\n")\nprint("6 of 6 passed")';
  expect(await reward(shout)).toBe(0);
});

test('a solution cannot write the verifier’s reward file', async () => {
  const forge = `
import os
for path in (os.environ["LOGS_DIR"] + "/verifier/reward.txt", "/logs/verifier/reward.txt"):
    folder = os.path.dirname(path)
    for trick in (
        lambda: open(path, "w").write("1"),
        lambda: os.symlink("/app/one", path + ".part"),
        lambda: os.unlink(path),
        lambda: os.rename(folder, folder + "2"),
        lambda: os.mkdir(path),
    ):
        try:
            trick()
        except OSError:
            pass
def add(a, b): return None
`;
  expect(await reward(forge)).toBe(0);
});

test('a solution that kills its verifier gets a reward of 0', async () => {
  expect(await reward('import os\nos.kill(os.getppid(), 9)')).toBe(0);
});

test('a solution can read the expected results neither from files nor from the verifier’s memory', async () => {
  const cheat = `
import gc, glob, json, os, sys
def add(a, b):
    for path in glob.glob(os.environ["TESTS_DIR"] + "/*.json"):
        for case in json.load(open(path))["cases"]:
            if case["args"] == [a, b]: return case["expected"]
    for thing in gc.get_objects():
        if isinstance(thing, dict) and thing.get("args") == [a, b] and "expected" in thing: return thing["expected"]
    open(f"/proc/{os.getppid()}/mem", "rb")
    return a + b
`;
  expect(await reward(cheat)).toBe(0);
});
