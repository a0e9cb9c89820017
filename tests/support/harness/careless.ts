import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { cp } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { openBackend } from '../../../activities/sandbox/backends.ts';
import { bubblewrapBackend } from '../../../activities/sandbox/bubblewrap-backend.ts';
import { createSandbox } from '../../../activities/sandbox/create-sandbox.ts';
import { destroySandbox } from '../../../activities/sandbox/destroy-sandbox.ts';
import { handOver } from '../../../activities/sandbox/empty-sandbox.ts';
import { isolation } from '../../../activities/sandbox/isolation.ts';
import { launch } from '../../../activities/sandbox/launcher.ts';
import { loadAgent, type Agent } from '../../../activities/sandbox/load-agent.ts';
import { baseEnvironment, ownMounts, pathsOf } from '../../../activities/sandbox/sandbox-paths.ts';
import { sandboxUser } from '../../../activities/sandbox/sandbox-user.ts';
import { loadTask } from '../../../activities/tasks/load-task.ts';
import { attacksOn } from '../../../cli/attack/attack-task.ts';
import type { AttackRun } from '../../../cli/attack/try-attacks.ts';
import { INSTALLS } from '../../../cli/folders.ts';
import { rewardFunction, rewardFunctions, type Reward } from '../../../core/run-config/reward.ts';
import type { FolderTask, RowTask, Task } from '../../../core/task.ts';
import { rewardFile, type CarelessReward, type CarelessTask } from '../scenarios/careless-verifiers.ts';
import { writeFiles } from './sandbox-fixtures.ts';

const PROGRAMS = fileURLToPath(new URL('../../../cli/attack/programs', import.meta.url));
const PYTEST = ['pytest', '_pytest', 'pluggy', 'iniconfig', 'packaging', 'pygments'];
const RIGHT = 'def add(a, b):\n    return a + b\n';
const WRONG = 'def add(a, b):\n    return 0\n';

/** An agent with room for every attack. */
const attacker = async (): Promise<Agent> => ({
  ...(await loadAgent('oneshot')),
  limits: { processes: 64, output_bytes: 1_048_576 },
});

/** Returns the run of some attacks on a task, or of all, by that agent in a sandbox of the default kind. */
export async function attackRun(home: string, task: Task, only?: readonly string[]): Promise<AttackRun> {
  return {
    task,
    agent: await attacker(),
    place: { backend: await openBackend(), image: null, verifier: null },
    environment: null,
    network: 'gateway',
    weights: {},
    attacks: attacksOn(task, only?.join(',')),
    home,
    report: () => {},
    signal: new AbortController().signal,
  };
}

/** Makes the folder of a task with a careless verifier. */
export async function carelessTask(folder: string, given: CarelessTask): Promise<FolderTask> {
  mkdirSync(folder, { recursive: true });
  await writeFiles(folder, { 'task.toml': given.toml ?? '[verifier]\ntimeout_sec = 20\n', ...given.files });
  if (given.needsPytest) packPytest(join(folder, 'tests/pytest.zip'));
  if (given.hasHistory) await leaveHistory(join(folder, 'environment'));
  return loadTask(folder);
}

/** Packs pytest, compiled, because a verifier's sandbox has a copy of the tests. */
const PACK = `
import compileall, pathlib, py_compile, shutil, sys, sysconfig, tempfile, zipfile
packages = pathlib.Path(sysconfig.get_path("purelib"))
with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(sys.argv[1], "w") as packed:
    for name in sys.argv[2:]:
        shutil.copytree(packages / name, pathlib.Path(folder, name), ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(folder, quiet=2, legacy=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    for file in pathlib.Path(folder).rglob("*.py*"):
        packed.write(file, file.relative_to(folder))
`;

function packPytest(to: string): void {
  execFileSync(INSTALLS.python, ['-c', PACK, to, ...PYTEST]);
}

/** Makes a repository whose branch is one commit behind, as when a task is made by going back to before a fix. */
async function leaveHistory(folder: string): Promise<void> {
  const git = (...args: string[]) =>
    execFileSync('git', ['-C', folder, '-c', 'user.name=a', '-c', 'user.email=a@localhost', ...args], {
      stdio: 'pipe',
    });
  git('init', '--quiet', '--template=');
  for (const [text, message] of [
    [WRONG, 'begin'],
    [RIGHT, 'fix'],
  ] as const) {
    await writeFiles(folder, { 'solution.py': text });
    git('add', '.');
    git('commit', '--quiet', '--message', message);
  }
  git('reset', '--quiet', '--hard', 'HEAD~1');
}

/** Makes a row whose reward is careless, or the given one. */
export async function carelessRow(
  folder: string,
  {
    prompt,
    row,
    ...given
  }: Omit<CarelessReward, 'attacks' | 'body' | 'row'> & { row: RowTask['row']; body?: string; reward?: Reward },
): Promise<RowTask> {
  const file = join(folder, 'reward/grade.py');
  if (given.body !== undefined) await writeFiles(folder, { 'reward/grade.py': rewardFile({ body: given.body }) });
  return {
    kind: 'row',
    name: 'rows#0',
    row,
    columns: [],
    prompt,
    messages: [{ role: 'user', content: prompt }],
    rewards: rewardFunctions(
      given.reward ??
        rewardFunction.parse({
          function: `${file}:score`,
          seconds: 3,
          processes: 2,
          network: given.reachesHost ? 'host' : 'none',
        }),
    ),
    instruction: prompt,
    agent: { timeoutSec: 60 },
    verifier: { timeoutSec: 60, env: {} },
    environment: { cpus: 1, memoryMb: 512, storageMb: 100, env: {} },
  };
}

/**
 * Runs a program and then the tests in one and the same sandbox, with what the program left in it, its processes too. Returns the reward, or
 * null when there is none. Without a program only the tests run.
 */
export async function judgeInPlace(
  { home, task, shell = [] }: { home: string; task: FolderTask; shell?: readonly string[] },
  program: string | null,
): Promise<number | null> {
  const here = await isolation();
  const backend = bubblewrapBackend(here);
  const key = { trialId: `in-place-${program?.replaceAll('_', '-') ?? 'nothing'}`, attempt: 1 };
  const sandbox = await createSandbox({ home, ...key, task, backend });
  try {
    const tests = join(sandbox.root, 'tests');
    await cp(join(task.folder, 'tests'), tests, { recursive: true });
    mkdirSync(join(sandbox.logs, 'verifier'));
    await handOver(sandbox.root, sandbox.uid);
    const paths = pathsOf(sandbox, here);
    const isWrapped = here.kind === 'bubblewrap';
    const inside = { tests: isWrapped ? '/tests' : tests, programs: isWrapped ? '/programs' : PROGRAMS };
    const script = [
      program === null ? '' : `python3 -B ${inside.programs}/${program}.py nowhere nowhere`,
      `bash ${shell.join(' ')} ${inside.tests}/test.sh`,
      'echo; echo "reward is $(cat "$LOGS_DIR/verifier/reward.txt")"',
    ];
    const result = await launch({
      argv: ['bash', '-c', script.join('\n')],
      cwd: paths.work,
      env: {
        ...baseEnvironment(here.python.executable, paths),
        TESTS_DIR: inside.tests,
        LOGS_DIR: paths.logs,
        WORK_DIR: paths.work,
      },
      limits: { seconds: 5, memoryMb: 512, outputBytes: 1_000_000, processes: 64, cpus: 1, storageMb: 100 },
      isolation: here,
      uid: sandboxUser(here, sandbox),
      mounts: [
        ...ownMounts(sandbox, paths),
        { host: tests, inside: inside.tests, writable: true },
        { host: PROGRAMS, inside: inside.programs, writable: false },
      ],
      network: { kind: 'none' },
      marker: sandbox.marker,
      root: sandbox.root,
      signal: new AbortController().signal,
    });
    const said = /^reward is (.+)$/m.exec(result.stdout)?.[1];
    return result.reason === 'exited' && said !== undefined ? Number(said) : null;
  } finally {
    await destroySandbox({ home, ...key, backend });
  }
}

/** Returns a row for each bundled reward, as their users write them. `judge` is the URL of a judge model. */
export async function bundledRows(folder: string, judge: string): Promise<RowTask[]> {
  const schema = {
    type: 'object',
    properties: { price: { type: 'number', minimum: 3, maximum: 4 }, name: { type: 'string', minLength: 2 } },
    required: ['price', 'name'],
    additionalProperties: false,
  };
  const tests = [
    { input: '2', output: '4' },
    { input: '5', output: '10' },
  ];
  const rows: Record<string, { prompt: string; row: RowTask['row']; options?: Record<string, unknown> }> = {
    exact_match: { prompt: 'What is 6 times 7?', row: { answer: '42' } },
    numeric: { prompt: 'What is 6 times 7?', row: { answer: '6 * 7 = 42\n#### 42' } },
    math_equal: { prompt: 'What is $6 \\cdot 7$?', row: { answer: '\\boxed{42}' } },
    code_tests: { prompt: 'Write a program that reads a number `n` and prints its double.', row: { tests } },
    json_schema: { prompt: 'Answer with JSON that has a `price` from 3 to 4 and a `name`.', row: { schema } },
    judge: {
      prompt: 'Why is the sky blue?',
      row: {},
      options: { url: judge, model: 'm', rubric: 'Is the reply right?' },
    },
  };
  const made = Object.entries(rows).map(async ([name, { options = {}, ...given }]) => {
    const reward = rewardFunction.parse({ function: name, options, processes: 2 });
    return { ...(await carelessRow(folder, { ...given, reward })), name };
  });
  return Promise.all(made);
}

/** Starts a gateway that fetches whatever it is asked for, and a service that answers everybody, as a cloud's metadata does. */
export async function openProxy(): Promise<{ url: string; service: string } & AsyncDisposable> {
  const proxy = createServer((request, response) => {
    if (!request.url?.startsWith('http:')) return void response.writeHead(503).end();
    fetch(request.url).then(
      async (answer) => response.end(await answer.text()),
      () => response.writeHead(502).end(),
    );
  });
  const metadata = createServer((_, response) => void response.end('the keys'));
  const servers = [proxy, metadata];
  const [url = '', service = ''] = await Promise.all(
    servers.map(async (server) => {
      await once(server.listen(0, '127.0.0.1'), 'listening');
      const address = server.address();
      return `127.0.0.1:${address !== null && typeof address === 'object' ? address.port : 0}`;
    }),
  );
  const close = async (server: Server): Promise<void> => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  };
  return {
    url: `http://${url}`,
    service,
    [Symbol.asyncDispose]: async () => void (await Promise.all(servers.map(close))),
  };
}
