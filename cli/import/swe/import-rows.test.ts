import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { parquetWriteFile } from 'hyparquet-writer';
import { beforeAll, describe, expect, test } from 'vitest';
import { createSandbox } from '../../../activities/sandbox/create-sandbox.ts';
import type { Sandbox } from '../../../activities/sandbox/empty-sandbox.ts';
import { openBackend } from '../../../activities/sandbox/backends.ts';
import { judgeWork } from '../../../activities/sandbox/judge-work.ts';
import { loadTask } from '../../../activities/tasks/load-task.ts';
import type { FolderTask } from '../../../core/task.ts';
import { commitFiles, gitIn, newRepository } from '../../../tests/support/harness/git-repository.ts';
import { shell, temporaryHome, writeFiles } from '../../../tests/support/harness/sandbox-fixtures.ts';
import { INSTALLS } from '../../folders.ts';
import { importReport } from './import-report.ts';
import { importSweRows, type Imported, type SweImport } from './import-rows.ts';

const run = promisify(execFile);
const backend = await openBackend();
const here = backend.host;

const BASE = {
  'calc.py': 'def add(a, b):\n    return abs(a) + abs(b)\n',
  'tests/helpers.py': 'def same(a, b):\n    return a == b\n',
  'tests/conftest.py': 'import sys, os\nsys.path.insert(0, os.path.dirname(__file__))\n',
  'tests/test_calc.py':
    'import calc\nfrom helpers import same\n\ndef test_add():\n    assert same(calc.add(1, 2), 3)\n',
};
const SOLVED = { 'calc.py': 'def add(a, b):\n    return a + b\n' };
const TESTED = {
  'tests/test_calc.py': `${BASE['tests/test_calc.py']}
import pytest

@pytest.mark.parametrize("what", ["both negative", "one"])
def test_negative(what):
    assert same(calc.add(-1, -2), -3)

def test_unrelated():
    assert False
`,
};
const NAMES = {
  FAIL_TO_PASS: ['tests/test_calc.py::test_negative[both', 'tests/test_calc.py::test_negative[one]'],
  PASS_TO_PASS: ['tests/test_calc.py::test_add'],
};

type Row = Record<string, unknown>;

/** Makes a repository, and the columns of a row about it that all data sets have. */
async function rowOf(
  mirror: string,
  repo: string,
  base: Record<string, string>,
  solved: Record<string, string>,
  tested: Record<string, string>,
): Promise<Row> {
  const clone = join(mirror, repo);
  await newRepository(clone);
  const base_commit = await commitFiles(clone, 'base', base);
  const patchOf = async (files: Record<string, string>): Promise<string> => {
    await writeFiles(clone, files);
    await gitIn(clone, 'add', '--all');
    const patch = await gitIn(clone, 'diff', '--cached');
    await gitIn(clone, 'reset', '--hard', '--quiet');
    return patch;
  };
  const [patch, test_patch] = [await patchOf(solved), await patchOf(tested)];
  await commitFiles(clone, 'the fix', { ...solved, ...tested });
  return {
    instance_id: `${repo.replace('/', '__')}-1`,
    repo,
    base_commit,
    patch,
    test_patch,
    problem_statement: 'add is wrong.',
  };
}

async function importRows(home: string, rows: readonly Row[], more: Partial<SweImport> = {}): Promise<Imported> {
  const file = join(home, `rows-${Math.random()}.jsonl`);
  await writeFile(file, rows.map((row) => JSON.stringify(row)).join('\n'));
  return importSweRows(requestOf(home, file, more), AbortSignal.timeout(60_000));
}

const requestOf = (home: string, rows: string, more: Partial<SweImport> = {}): SweImport => ({
  rows,
  folder: join(home, `tasks-${Math.random()}`),
  image: 'row',
  repositories: { mirror: join(home, 'mirror') },
  history: false,
  shares: false,
  home,
  ...more,
});

describe('rows that are imported', () => {
  let place: Awaited<ReturnType<typeof temporaryHome>>;
  let row: Row = {};
  beforeAll(async () => {
    place = await temporaryHome();
    row = { ...(await rowOf(join(place.home, 'mirror'), 'acme/calc', BASE, SOLVED, TESTED)), ...NAMES };
    return () => place[Symbol.asyncDispose]();
  });

  test('a row of SWE-bench in CSV, of SWE-Gym in JSON Lines and of SWE-rebench in Parquet become the same task, except for the image', async () => {
    const { home } = place;
    const lists = Object.fromEntries(Object.entries(NAMES).map(([name, tests]) => [name, JSON.stringify(tests)]));
    const bench = { ...row, ...lists, version: '1.0', environment_setup_commit: row['base_commit'], hints_text: '' };
    const csv = join(home, 'bench.csv');
    const quoted = (values: unknown[]) => values.map((value) => `"${String(value).replaceAll('"', '""')}"`).join(',');
    await writeFile(csv, `${quoted(Object.keys(bench))}\n${quoted(Object.values(bench))}\n`);
    const rebench = {
      ...row,
      ...lists,
      docker_image: 'swerebench/sweb.eval.x86_64.acme_1776_calc-1',
      install_config: JSON.stringify({ log_parser: 'parse_log_pytest', test_cmd: 'pytest -rA', python: '3.9' }),
    };
    const parquet = join(home, 'rebench.parquet');
    parquetWriteFile({
      filename: parquet,
      columnData: Object.entries(rebench).map(([name, value]) => ({
        name,
        data: [String(value)],
        type: 'STRING' as const,
      })),
    });
    const [ofBench, ofGym, ofRebench] = [
      await importSweRows(requestOf(home, csv), AbortSignal.timeout(60_000)),
      await importRows(home, [row]),
      await importSweRows(requestOf(home, parquet), AbortSignal.timeout(60_000)),
    ];
    const read = async ({ folder }: Imported, file: string) => readFile(join(folder, 'acme__calc-1', file), 'utf8');
    for (const file of await readdir(join(ofGym.folder, 'acme__calc-1/tests')))
      for (const other of [ofBench, ofRebench])
        expect(await read(other, `tests/${file}`)).toBe(await read(ofGym, `tests/${file}`));
    expect(await read(ofRebench, 'task.toml')).toContain(
      'docker_image = "swerebench/sweb.eval.x86_64.acme_1776_calc-1"',
    );
    expect(await loadTask(join(ofGym.folder, 'acme__calc-1'))).toMatchObject({
      name: 'acme__calc-1',
      instruction: expect.stringContaining('add is wrong.'),
      repository: { url: join(home, 'mirror/acme/calc'), commit: row['base_commit'], path: '.', history: false },
    });
  });

  test('an image may be given for all rows, or left out', async () => {
    const image = 'xingyaoww/sweb.eval.x86_64.{instance_id:_s_}';
    const toml = async (more: Partial<SweImport>) =>
      readFile(
        join((await importRows(place.home, [{ ...row, docker_image: 'own' }], more)).folder, 'acme__calc-1/task.toml'),
        'utf8',
      );
    expect(await toml({ image })).toContain('docker_image = "xingyaoww/sweb.eval.x86_64.acme_s_calc-1"');
    expect(await toml({ image: 'none' })).not.toContain('docker_image');
    expect(await toml({ repositories: { base: 'https://git.example.org/mirror/' } })).toContain(
      'url = "https://git.example.org/mirror/acme/calc"',
    );
  });

  test('a row of which no task can be made is refused by its name with the reason, and the others go on', async () => {
    const rows = [
      row,
      { ...row },
      { ...row, instance_id: 'js', log_parser: 'parse_log_jest' },
      { ...row, instance_id: 'sympy', FAIL_TO_PASS: ['test_limit'] },
      {
        ...row,
        instance_id: 'binary',
        test_patch: 'diff --git a/x.png b/x.png\nBinary files /dev/null and b/x.png differ\n',
      },
      { ...row, instance_id: '../up' },
      { ...row, instance_id: 'no-commit', base_commit: 'main' },
      { ...row, instance_id: 'no-tests', FAIL_TO_PASS: '[]' },
      { ...row, instance_id: 'no-clone', repo: 'acme/other' },
      { instance_id: 'empty' },
    ];
    const imported = await importRows(place.home, rows);
    expect(await readdir(imported.folder)).toEqual(['acme__calc-1']);
    const reasons = Object.fromEntries(imported.refused.map((each) => [each.row, each.reason]));
    expect(reasons).toEqual({
      'acme__calc-1': 'another row has the same instance_id',
      js: expect.stringMatching(/parse_log_jest is of a test runner that is not supported/),
      sympy: expect.stringMatching(/"test_limit" is named neither as pytest's/),
      binary: expect.stringMatching(/it lacks the content of a file/),
      '../up': expect.stringMatching(/^instance_id: expected letters/),
      'no-commit': expect.stringMatching(/^base_commit: expected/),
      'no-tests': 'FAIL_TO_PASS: has no test',
      'no-clone': expect.stringMatching(/has no clone of acme\/other/),
      empty: 'repo: the row has no such column',
    });
    expect(importReport(imported)).toMatch(/^1 task in .*\n9 rows refused:\n {2}acme__calc-1: another row/);
    await expect(importRows(place.home, rows.slice(2))).rejects.toThrow(
      /no row of .* can be imported; the first, js: the log parser/,
    );
    await expect(importRows(place.home, [row], { folder: imported.folder })).rejects.toThrow(
      /has files: name a new folder/,
    );
  });

  describe.skipIf(here.kind !== 'bubblewrap')('judged by pytest under bubblewrap', () => {
    let task: FolderTask;
    beforeAll(async () => {
      task = await withPytest(join((await importRows(place.home, [row], { shares: true })).folder, 'acme__calc-1'));
    });
    const judge = (files: Record<string, string>, script = 'true') => judged(place.home, task, files, script);

    test('the reference solution gets 1, and no change gets 0', async () => {
      expect((await judge(SOLVED)).rewards).toEqual({ reward: 1, fail_to_pass: 1, pass_to_pass: 1 });
      const { rewards, stdout } = await judge({});
      expect(rewards).toEqual({ reward: 0, fail_to_pass: 0, pass_to_pass: 1 });
      expect(stdout).toContain('FAIL_TO_PASS: 0 of 2\n  FAILED tests/test_calc.py::test_negative[both\n');
      expect(stdout).not.toContain('test_unrelated');
    });

    test('the agent sees neither the tests of its row nor the solution, also not in git', async () => {
      const sandbox = await createSandbox({ backend, home: place.home, trialId: 'seeing', attempt: 1, task });
      const script = 'cat tests/*.py; git log -p --all; ls -A / /tests; git cat-file --batch-all-objects --batch';
      const { stdout: seen } = await shell(here, sandbox, script);
      expect(seen).toContain('def same');
      expect(seen).not.toMatch(/test_negative|return a \+ b/);
    });

    test('an agent that breaks a test that passed gets 0', async () => {
      const { rewards } = await judge({ 'calc.py': 'def add(a, b):\n    return -3\n' });
      expect(rewards).toEqual({ reward: 0, fail_to_pass: 1, pass_to_pass: 0 });
    });

    test('an agent that changes what decides about the tests gets 0: tests, their helpers, conftest, settings, plugins, bytecode, modules that Python loads by itself', async () => {
      const passing = `import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = "passed"
`;
      const cheats = {
        'conftest.py': passing,
        'tests/conftest.py': BASE['tests/conftest.py'] + passing,
        'evil.py': passing,
        'pytest.ini': '[pytest]\naddopts = -p evil\n',
        'evil-1.0.dist-info/METADATA': 'Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n',
        'evil-1.0.dist-info/entry_points.txt': '[pytest11]\nevil = evil\n',
        'sitecustomize.py': 'import sys; sys.argv.append("-h")\n',
        'tests/helpers.py': 'def same(a, b):\n    return True\n',
        'tests/test_calc.py': 'def test_add(): pass\ndef test_negative(): pass\n',
      };
      const script = `PYTHONPATH=/packages python3 -m pytest -q -s tests/test_calc.py
        mkdir -p tests/__pycache__; mv tests/helpers.py /tmp; cp calc.py tests/helpers.py
        python3 -c "import py_compile, sys; py_compile.compile('/tmp/helpers.py', 'tests/__pycache__/helpers.%s.pyc' % sys.implementation.cache_tag, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)"
        PYTHONPATH=tests python3 -c 'from helpers import same; print("bytecode", same(1, 2))'`;
      const { rewards, seen } = await judge(cheats, script);
      // They work where nothing prevents them.
      expect(seen).toContain('2 passed');
      expect(seen).toContain('bytecode True');
      expect(rewards).toEqual({ reward: 0, fail_to_pass: 0, pass_to_pass: 1 });
    });

    test('a process that the agent’s code leaves behind cannot write a reward of its own', async () => {
      const code = `import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            for name in ("reward.txt", "reward.json"):
                with open("/logs/verifier/" + name, "w") as file:
                    file.write("1" if name == "reward.txt" else '{"reward": 1}')
            time.sleep(0.001)
    os._exit(0)
`;
      const { rewards } = await judge({ 'calc.py': `${code}${BASE['calc.py']}` });
      expect(rewards).toMatchObject({ reward: 0, fail_to_pass: 0 });
    });

    test('an agent that makes folders and files where the row’s tests go, and moves its `.git`, gets what its code deserves', async () => {
      const script = 'rm -rf tests .git; mkdir -p tests/test_calc.py/x tests/conftest.py; echo x > pytest.ini';
      expect((await judge(SOLVED, script)).rewards).toMatchObject({ reward: 1 });
    });
  });
});

describe.skipIf(here.kind !== 'bubblewrap')('tests of unittest under bubblewrap', () => {
  const testFile = (more: string) => `import unittest, calc\n\nclass Adding(unittest.TestCase):
    def test_add(self):
        self.assertEqual(calc.add(1, 2), 3)
${more}`;
  const negative = `
    def test_negative(self):
        """Negative numbers are added.

        More.
        """
        for a in (1, -1):
            with self.subTest(a=a):
                self.assertEqual(calc.add(a, -2), a - 2)
`;

  test('a row whose tests are named as unittest names them is judged by unittest', async () => {
    await using place = await temporaryHome();
    const row = await rowOf(
      join(place.home, 'mirror'),
      'acme/calc',
      { 'calc.py': BASE['calc.py'], 'test_it.py': testFile('') },
      SOLVED,
      {
        'test_it.py': testFile(negative),
      },
    );
    const names = {
      FAIL_TO_PASS: ['test_negative (test_it.Adding)'],
      PASS_TO_PASS: ['test_add (test_it.Adding.test_add)'],
    };
    const { folder } = await importRows(place.home, [{ ...row, ...names }]);
    const task = await loadTask(join(folder, 'acme__calc-1'));
    expect((await judged(place.home, task, SOLVED)).rewards).toEqual({ reward: 1 });
  });

  test('a row of Django is judged by Django’s own program, whose tests may be called by the first line of their description', async () => {
    await using place = await temporaryHome();
    const runtests = `import argparse, unittest
parser = argparse.ArgumentParser()
parser.add_argument("modules", nargs="*")
parser.add_argument("--verbosity", type=int)
parser.add_argument("--settings")
parser.add_argument("--parallel", type=int)
options = parser.parse_args()
assert options.settings == "test_sqlite"
suite = unittest.defaultTestLoader.loadTestsFromNames(options.modules)
unittest.TextTestRunner(verbosity=options.verbosity).run(suite)
raise SystemExit(1)
`;
    const row = await rowOf(
      join(place.home, 'mirror'),
      'django/django',
      { 'calc.py': BASE['calc.py'], 'tests/runtests.py': runtests, 'tests/adding/tests.py': testFile('') },
      SOLVED,
      { 'tests/adding/tests.py': testFile(negative) },
    );
    const names = { FAIL_TO_PASS: ['Negative numbers are added.'], PASS_TO_PASS: ['test_add (adding.tests.Adding)'] };
    const { folder } = await importRows(place.home, [{ ...row, ...names, version: '4.2' }]);
    const task = await loadTask(join(folder, 'django__django-1'));
    expect((await judged(place.home, task, SOLVED)).rewards).toEqual({ reward: 1 });
    expect((await judged(place.home, task, {})).rewards).toEqual({ reward: 0 });
  });
});

/** Puts pytest beside the tests of a task: this machine's Python, which sandboxes use, may have none. */
async function withPytest(folder: string): Promise<FolderTask> {
  const ask =
    'import pytest, _pytest, pluggy, iniconfig, packaging; print(*(m.__file__ for m in (pytest, _pytest, pluggy, iniconfig, packaging)), sep="\\n")';
  const { stdout } = await run(INSTALLS.python, ['-c', ask]);
  for (const file of stdout.trim().split('\n')) {
    const from = dirname(file);
    await cp(from, join(folder, 'tests/packages', from.slice(dirname(from).length + 1)), { recursive: true });
  }
  // A copy of a file has another time than its bytecode was made for.
  const compile = ['-m', 'compileall', '-q', '--invalidation-mode', 'unchecked-hash', join(folder, 'tests/packages')];
  await run(here.python.executable, compile);
  await writeFile(
    join(folder, 'task.toml'),
    `${await readFile(join(folder, 'task.toml'), 'utf8')}\n[verifier.env]\nPYTHONPATH = "/tests/packages"\n`,
  );
  return loadTask(folder);
}

let trials = 0;

/** Does an agent's work in a sandbox of the task, and judges it. */
async function judged(home: string, task: FolderTask, files: Record<string, string>, script = 'true') {
  trials += 1;
  const sandbox: Sandbox = await createSandbox({ backend, home, trialId: `swe-${trials}`, attempt: 1, task });
  const packages = join(task.folder, 'tests/packages');
  const mounts = existsSync(packages) ? [{ host: packages, inside: '/packages', writable: false }] : [];
  const written = await writeFiles(sandbox.work, files).then(() =>
    shell(here, sandbox, script, { mounts, memoryMb: 1024, seconds: 60 }),
  );
  let stdout = '';
  const onOutput = (output: { stdout: string }) => void (stdout = output.stdout);
  const verdict = await judgeWork({ task, sandbox, backend, signal: AbortSignal.timeout(120_000), onOutput });
  await rm(sandbox.root, { recursive: true, force: true });
  return { ...verdict, stdout, seen: written.stdout + written.stderr };
}
