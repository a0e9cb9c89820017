import { execFileSync } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { INSTALLS } from '../../cli/folders.ts';
import { agentFile } from '../../core/run-config/agent-file.ts';
import { sandboxWith, taskWith, temporaryHome } from '../support/harness/sandbox-fixtures.ts';
import { loadAgent } from '../../activities/sandbox/load-agent.ts';
import { runAgentProcess } from '../../activities/sandbox/run-agent-process.ts';
import { agentEnvironment } from '../../activities/environments/agent-environment.ts';
import { npmEnvironment } from '../../activities/environments/npm.ts';
import { pythonEnvironment } from '../../activities/environments/python.ts';

const WHEEL = 'small_package-1.0-py3-none-any.whl';
/** Writes a small wheel with a module and a command: argv is its path. */
const MAKE_WHEEL = `
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    wheel.writestr('small_package.py', 'answer = 42\\ndef main(): print("it runs")\\n')
    info = 'small_package-1.0.dist-info'
    wheel.writestr(info + '/METADATA', 'Metadata-Version: 2.1\\nName: small-package\\nVersion: 1.0\\n')
    wheel.writestr(info + '/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(info + '/entry_points.txt', '[console_scripts]\\nsmall-command = small_package:main\\n')
    wheel.writestr(info + '/RECORD', '')
`;
import { openBackend } from '../../activities/sandbox/backends.ts';

const backend = await openBackend();

let folder = '';
let wheel = '';
let place: Awaited<ReturnType<typeof temporaryHome>>;
const lines: string[] = [];
const options = () => ({
  home: place.home,
  signal: new AbortController().signal,
  report: (line: string) => void lines.push(line),
});

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'trialgate-packages-'));
  wheel = join(folder, WHEEL);
  execFileSync(INSTALLS.python, ['-c', MAKE_WHEEL, wheel]);
  place = await temporaryHome();
});
beforeEach(() => void (lines.length = 0));
afterAll(async () => {
  await rm(folder, { recursive: true });
  await place[Symbol.asyncDispose]();
});

test('packages are installed once, also for callers at the same time, and their versions are written down', async () => {
  const python = { requirements: [wheel] };
  const made = await Promise.all([pythonEnvironment(python, options()), pythonEnvironment(python, options())]);
  expect(made[0]).toEqual(made[1]);
  expect(lines).toEqual([
    expect.stringMatching(/^installing Python packages \(.*small_package.*\) \(once; log: .*environments\.log\)$/),
    expect.stringMatching(/^installed Python packages .* in \d+ s$/),
  ]);
  const [environment = ''] = made[0]?.folders ?? [];
  expect(await readFile(join(environment, 'requirements.lock'), 'utf8')).toContain(WHEEL);
  expect(await readdir(join(place.home, 'environments'))).toHaveLength(1);
  const file = join(folder, 'requirements.txt');
  await writeFile(file, `${wheel}\n`);
  expect(await pythonEnvironment({ requirements: file }, options())).toEqual(made[0]);
});

test('an agent in a sandbox finds its packages and their commands', async () => {
  const file = agentFile.parse({
    command: ['/bin/sh', '-c', 'small-command && {python} -c "import small_package; print(small_package.answer)"'],
    python: { requirements: [wheel] },
  });
  const agent = await loadAgent(file);
  const task = await taskWith(place.home, 'true');
  const result = await runAgentProcess({
    agent,
    task,
    sandbox: await sandboxWith(place.home, {}, task),
    backend,
    environment: await agentEnvironment(agent, options()),
    trialId: 't',
    gateway: 'http://127.0.0.1:9',
    network: 'gateway',
    apiKey: 'k',
    model: 'policy',
    signal: new AbortController().signal,
  });
  expect([result.reason, result.process.stdout]).toEqual([null, 'it runs\n42\n']);
});

test('packages that cannot be had are refused with the installer’s reason, and nothing is left half made', async () => {
  const before = await readdir(join(place.home, 'environments'));
  await expect(
    pythonEnvironment({ requirements: ['small-package @ file:///nowhere.whl'] }, options()),
  ).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(
      /^Python packages \(small-package @ .*\) cannot be installed: .*nowhere\.whl.* \(all output: /,
    ),
  });
  await expect(pythonEnvironment({ requirements: '/nowhere.txt' }, options())).rejects.toThrow(
    'python: there is no file /nowhere.txt',
  );
  await expect(pythonEnvironment({ venv: '/nowhere' }, options())).rejects.toThrow('/nowhere/bin/python does not run');
  await expect(npmEnvironment({ packages: ['small@file:/nowhere.tgz'] }, options())).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(/^npm packages \(small@file:\/nowhere\.tgz\) cannot be installed: .*nowhere\.tgz/),
  });
  expect(await readdir(join(place.home, 'environments'))).toEqual(before);
});

test('a virtual environment that exists is used as it is', async () => {
  const venv = join(INSTALLS.python, '../..');
  expect(await pythonEnvironment({ venv }, options())).toMatchObject({ python: join(venv, 'bin/python') });
  expect(lines).toEqual([]);
});

test.each([
  [
    'two sources of Python packages',
    { python: { requirements: ['a'], venv: 'b' } },
    'say exactly one of `requirements`',
  ],
  ['none', { npm: {} }, 'say exactly one of `package_json` and `packages`'],
])('an agent’s file with %s is refused', (_, given, message) => {
  expect(() => agentFile.parse({ command: ['x'], ...given })).toThrow(message);
});
