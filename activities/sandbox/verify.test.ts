import { existsSync, symlinkSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import {
  isolations,
  sandboxWith,
  testedIsolations,
  taskWith,
  temporaryHome,
} from '../../tests/support/harness/sandbox-fixtures.ts';
import { verify, type Verdict } from './verify.ts';
import type { Isolation } from './isolation.ts';
import { bubblewrapBackend } from './bubblewrap-backend.ts';

async function verdict(isolation: Isolation, script: string, files: Record<string, string> = {}): Promise<Verdict> {
  await using folder = await temporaryHome();
  const task = await taskWith(folder.home, script);
  const sandbox = await sandboxWith(folder.home, files, task);
  try {
    return await verify({ task, sandbox, backend: bubblewrapBackend(isolation), signal: new AbortController().signal });
  } finally {
    expect(await readdir(join(folder.home, 'sandboxes'))).not.toContain('t.1.verify');
  }
}

const all = await isolations();

describe.each(await testedIsolations())('$kind', (isolation) => {
  test.each([
    ['nan', 'reward.txt: a reward is a finite number, found "nan"'],
    ['inf', 'found "inf"'],
    ['1e39', 'found 1e+39'],
    ['1e999', 'found Infinity'],
    ['passed', 'found "passed"'],
    ['0x1', 'found "0x1"'],
    ['', 'found ""'],
    ['1 1', 'found "1 1"'],
  ])(
    'a verifier that writes %j to reward.txt gives no reward but an error that names the fault',
    async (text, message) => {
      const writing = `echo '${text}' > $LOGS_DIR/verifier/reward.txt`;
      await expect(verdict(isolation, writing)).rejects.toMatchObject({
        name: 'VerifierError',
        message: expect.stringContaining(message),
      });
    },
  );

  test.each([
    ['{"a": 1, "b": "0.5"}', 'reward.json: b: a reward is a finite number, found "0.5"'],
    ['{"a": 1e39}', 'reward.json: a'],
    ['{"a": {"b": 1}}', 'reward.json: a'],
    ['{"a": NaN}', 'not an object of numbers'],
    ['[1]', 'not an object of numbers'],
    ['{}', 'holds no reward'],
    ['{"a": [0.5, 1e39]}', 'reward.json: a[1]: a reward is a finite number, found 1e+39'],
    ['{"a": [0.5, [0.5]]}', 'reward.json: a[1]'],
    ['{"a": [3e38, 3e38]}', 'reward.json: a: the sum of all turns: a reward is a finite number, found 6e+38'],
  ])(
    'a verifier that writes %s to reward.json gives no reward but an error that names the fault',
    async (json, message) => {
      const writing = `echo '${json}' > $LOGS_DIR/verifier/reward.json`;
      await expect(verdict(isolation, writing)).rejects.toMatchObject({
        name: 'VerifierError',
        message: expect.stringContaining(message),
      });
    },
  );

  test.each([
    [
      'both files: the names of reward.json',
      `echo 0 > reward.txt; echo '{"reward": 0.75}' > reward.json`,
      { reward: 0.75 },
    ],
    [
      'words beside a number in reward.json',
      `echo passed > reward.txt; echo '{"reward": 1}' > reward.json`,
      { reward: 1 },
    ],
    ['booleans', `echo '{"correct": true, "style": false}' > reward.json`, { correct: 1, style: 0 }],
    ['a number as Python writes it', `echo '1_000.5' > reward.txt`, { reward: 1000.5 }],
  ])('what a verifier writes is read as Harbor reads it: %s', async (_, writing, expected) => {
    expect((await verdict(isolation, `cd $LOGS_DIR/verifier; ${writing}`)).rewards).toEqual(expected);
  });

  test.each([
    [
      'bash that ends at an error',
      '#!/bin/bash -e\necho 1 > $LOGS_DIR/verifier/reward.txt\nfalse\necho 0 > $LOGS_DIR/verifier/reward.txt',
    ],
    [
      'Python',
      '#!/usr/bin/env python3\nimport os\nopen(os.environ["LOGS_DIR"] + "/verifier/reward.txt", "w").write("1")',
    ],
    ['no first line of its own', 'echo $((2 - 1)) > $LOGS_DIR/verifier/reward.txt'],
  ])('a verifier’s script runs by its first line, as in Harbor: %s', async (_, script) => {
    expect((await verdict(isolation, script)).rewards).toEqual({ reward: 1 });
  });

  test('a verifier gives rewards by name in reward.json', async () => {
    const { rewards, turnRewards } = await verdict(
      isolation,
      `echo '{"tests": 0.5, "style": 1}' > $LOGS_DIR/verifier/reward.json`,
    );
    expect({ rewards, turnRewards }).toEqual({ rewards: { tests: 0.5, style: 1 }, turnRewards: undefined });
  });

  test('a list in reward.json is what each turn earned, and its sum is the reward, at most 1 despite rounding', async () => {
    const json = '{"tests": 0.5, "steps": [0.25, 0, 0.5], "constructor": [0.7, 0.1, 0.1, 0.1], "none": []}';
    const { rewards, turnRewards } = await verdict(isolation, `echo '${json}' > $LOGS_DIR/verifier/reward.json`);
    expect(rewards).toEqual({ tests: 0.5, steps: 0.75, constructor: expect.closeTo(1), none: 0 });
    expect(Math.max(...Object.values(rewards))).toBeLessThanOrEqual(1);
    expect(turnRewards).toEqual({ steps: [0.25, 0, 0.5], constructor: [0.7, 0.1, 0.1, 0.1], none: [] });
  });

  test('a verifier whose tests crash without a reward gives an error that quotes their output', async () => {
    await expect(verdict(isolation, 'echo "no pytest here" >&2; exit 3')).rejects.toThrow(
      /no reward.*exit code 3 \(no pytest here\)/,
    );
  });

  test('a verifier whose tests hang is ended at its deadline and gives no reward', async () => {
    await expect(verdict(isolation, 'echo 1 > $LOGS_DIR/verifier/reward.txt; sleep 600')).rejects.toThrow(/timed_out/);
  });

  test('a verifier that leaves a link instead of a reward file gives no reward', async () => {
    await expect(
      verdict(isolation, 'echo 1 > $WORK_DIR/one; ln -s $WORK_DIR/one $LOGS_DIR/verifier/reward.txt'),
    ).rejects.toThrow(/no reward/);
  });

  test('a verifier does not get the links in the agent’s work, and its verdict names them', async () => {
    await using folder = await temporaryHome();
    const task = await taskWith(folder.home, 'ls -R $WORK_DIR; echo 1 > $LOGS_DIR/verifier/reward.txt');
    const sandbox = await sandboxWith(folder.home, { 'solution.py': '', 'deep/er/file.txt': '' }, task);
    symlinkSync('/etc/passwd', join(sandbox.work, 'passwd'));
    symlinkSync('/etc', join(sandbox.work, 'etc'));
    let stdout = '';
    const { skipped } = await verify({
      task,
      sandbox,
      backend: bubblewrapBackend(isolation),
      signal: new AbortController().signal,
      onOutput: (output) => (stdout = output.stdout),
    });
    expect(skipped.toSorted()).toEqual(['etc', 'passwd']);
    expect(stdout).toContain('file.txt');
    expect(stdout).not.toContain('passwd');
  });

  test('an agent’s changes reach neither the verifier’s logs nor its tests, and the verifier’s changes do not reach the agent’s work', async () => {
    await using folder = await temporaryHome();
    const task = await taskWith(
      folder.home,
      'echo changed > $WORK_DIR/a.txt; ls $LOGS_DIR/verifier $TESTS_DIR; echo 1 > $LOGS_DIR/verifier/reward.txt',
    );
    const sandbox = await sandboxWith(folder.home, { 'a.txt': 'mine', '../logs/verifier/reward.txt': '1' }, task);
    let stdout = '';
    await verify({
      task,
      sandbox,
      backend: bubblewrapBackend(isolation),
      signal: new AbortController().signal,
      onOutput: (output) => (stdout = output.stdout),
    });
    expect(stdout).not.toContain('reward');
    expect(existsSync(join(sandbox.work, 'tests'))).toBe(false);
  });

  test('tests with an environment of their own get its variables and not the agent’s', async () => {
    await using folder = await temporaryHome();
    const script =
      'echo "{\\"agent\\": ${AGENT:-0}, \\"tests\\": $TESTS, \\"both\\": $BOTH}" > $LOGS_DIR/verifier/reward.json';
    const toml = `
[environment.env]
AGENT = "1"
[verifier.env]
BOTH = "2"
[verifier.environment.env]
TESTS = "3"
BOTH = "4"
`;
    const task = await taskWith(folder.home, script, { 'task.toml': toml });
    const sandbox = await sandboxWith(folder.home, {}, task);
    const { rewards } = await verify({
      task,
      sandbox,
      backend: bubblewrapBackend(isolation),
      signal: new AbortController().signal,
    });
    expect(rewards).toEqual({ agent: 0, tests: 3, both: 2 });
  });

  test('a verifier that is aborted gives no rewards', async () => {
    await using folder = await temporaryHome();
    const task = await taskWith(folder.home, 'echo 1 > $LOGS_DIR/verifier/reward.txt; sleep 600');
    const sandbox = await sandboxWith(folder.home, {}, task);
    await expect(
      verify({ task, sandbox, backend: bubblewrapBackend(isolation), signal: AbortSignal.timeout(300) }),
    ).rejects.toThrow(/abort|timeout/i);
  });
});

test.skipIf(!all.some(({ kind }) => kind === 'bubblewrap'))(
  'a verifier of a Harbor task finds the absolute paths that Harbor gives it, such as /tests and /logs (needs bubblewrap)',
  async () => {
    const isolation = all.find(({ kind }) => kind === 'bubblewrap');
    if (!isolation) return;
    const script = 'test -f /app/instruction.md && test -f /tests/test.sh && echo 0.25 > /logs/verifier/reward.txt';
    expect((await verdict(isolation, script)).rewards).toEqual({ reward: 0.25 });
  },
);

test('without bubblewrap a verifier that uses absolute paths fails with an error that names the variables to use', async () => {
  const plain = all.find(({ kind }) => kind === 'none');
  if (plain)
    await expect(verdict(plain, 'echo 1 > /logs/verifier/reward.txt')).rejects.toThrow(
      /TESTS_DIR, LOGS_DIR and WORK_DIR/,
    );
});
