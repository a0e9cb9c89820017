import { expect, it } from 'vitest';
import { writeFiles, temporaryHome } from '../../../tests/support/harness/sandbox-fixtures.ts';
import type { Image, SandboxBackend } from '../backend.ts';
import { openBackend } from '../backends.ts';
import { isolation } from '../isolation.ts';
import { notStarted } from '../run-process.ts';
import { CHECKS, type Check } from './checks.ts';
import { LIMITS } from './context.ts';
import { runCheck } from './run-checks.ts';

const isMissing = (await isolation()).kind !== 'bubblewrap';

const signal = new AbortController().signal;

function checkOf(sentence: string): Check {
  const check = CHECKS.find((each) => each.sentence === sentence);
  if (check === undefined) throw new Error(`there is no check ${JSON.stringify(sentence)}`);
  return check;
}

it.skipIf(isMissing)(
  'a kind of sandbox that runs no program fails every check but the one that starts none',
  async () => {
    const real = await openBackend({ kind: 'bubblewrap' });
    const idle: SandboxBackend = { ...real, run: async () => ({ ...notStarted(), reason: 'exited', exitCode: 0 }) };
    const passed: string[] = [];
    for (const check of CHECKS.filter(({ isLarge }) => !isLarge)) {
      const { sentence, outcome } = await runCheck(idle, check, signal);
      if (outcome !== 'failed') passed.push(sentence);
    }
    expect(passed).toEqual(['a sandbox is found by its name while it is there, and removing it twice does nothing']);
  },
);

it.skipIf(isMissing)('sandboxes of the checks have the image and its variables', async () => {
  const real = await openBackend({ kind: 'bubblewrap' });
  const image: Image = { id: 'an image', workdir: '/app', files: null, env: { OF_IMAGE: 'yes' } };
  const seen: (string | undefined)[] = [];
  const backend: SandboxBackend = {
    ...real,
    start: async (request) => ({ ...(await real.start(request)), image: request.image }),
    run: (sandbox, command) => {
      seen.push(sandbox.image?.id, command.env['OF_IMAGE']);
      return real.run(sandbox, command);
    },
  };
  expect(await runCheck(backend, checkOf('output is passed on while the program runs'), signal, image)).toMatchObject({
    outcome: 'passed',
  });
  expect(seen).toEqual(['an image', 'yes']);
});

it.skipIf(isMissing)(
  'a sandbox has what its image has in its work folder, which its limit does not count',
  async () => {
    await using folder = await temporaryHome();
    await writeFiles(folder.home, { 'left/of-image': 'x' });
    const image: Image = { id: 'an image', workdir: '/app', files: folder.home, env: {} };
    const real = await openBackend({ kind: 'bubblewrap' });
    const seen: string[] = [];
    const limits: number[] = [];
    const backend: SandboxBackend = {
      ...real,
      run: async (sandbox, command) => {
        const script = 'cat left/of-image; exec "$@"';
        const result = await real.run(sandbox, { ...command, argv: ['bash', '-c', script, 'bash', ...command.argv] });
        seen.push(result.stdout.slice(0, 1));
        limits.push(command.limits.storageMb);
        return { ...result, stdout: result.stdout.slice(1) };
      },
    };
    expect(await runCheck(backend, checkOf('a sandbox of the same name starts empty'), signal, image)).toMatchObject({
      outcome: 'passed',
      reason: null,
    });
    expect(seen).toEqual(['x', 'x']);
    expect(limits).toEqual([LIMITS.storageMb + 1, LIMITS.storageMb + 1]);
  },
);

const APART = 'two sandboxes do not reach each other: no port of loopback, no abstract Unix socket';
const STARTS = 'a program starts in the work folder, with the environment that it is given and nothing of the worker’s';
const DISK = 'a program that writes more than its disk limit is refused or ended';

/** Real sandboxes that break one promise each, and the checks that must find it. */
const BROKEN: [string, string, (real: SandboxBackend) => SandboxBackend['run']][] = [
  [
    'shares the network of the host',
    APART,
    (real) => (sandbox, command) => real.run(sandbox, { ...command, network: { kind: 'host' } }),
  ],
  [
    'runs one program at a time',
    APART,
    (real) => {
      let running = { stop: () => {}, ended: Promise.resolve<unknown>(null) };
      return async (sandbox, command) => {
        running.stop();
        await running.ended;
        const stopping = new AbortController();
        const both = AbortSignal.any([command.signal, stopping.signal]);
        const ended = real.run(sandbox, { ...command, signal: both });
        running = { stop: () => stopping.abort(), ended };
        const result = await ended;
        return command.signal.aborted ? result : { ...result, reason: 'exited' };
      };
    },
  ],
  ['lets no program write a file', DISK, withScripts((script) => `head() { return 1; }; ${script}`)],
  [
    'lets a program inherit a descriptor',
    'a program inherits no open file and no socket but its standard input, output and error',
    (real) => (sandbox, command) =>
      real.run(sandbox, { ...command, argv: ['bash', '-c', 'exec "$@" 7< /dev/null', 'bash', ...command.argv] }),
  ],
  [
    'runs a failed program again',
    'a program that exited with an error, was killed or exceeded a limit is not run a second time',
    (real) => async (sandbox, command) => {
      const first = await real.run(sandbox, command);
      return first.exitCode === 0 ? first : real.run(sandbox, command);
    },
  ],
];

it.skipIf(isMissing).each(BROKEN)('a kind that %s fails a check', async (_, sentence, broken) => {
  const real = await openBackend({ kind: 'bubblewrap' });
  expect(await runCheck(real, checkOf(sentence), signal)).toMatchObject({ outcome: 'passed', reason: null });
  const { outcome } = await runCheck({ ...real, run: broken(real) }, checkOf(sentence), signal);
  expect(outcome).toBe('failed');
});

it.skipIf(isMissing)(
  'a warning of the machine, and output that comes in pieces, fail no check of two sandboxes',
  async () => {
    const real = await openBackend({ kind: 'bubblewrap' });
    const run: SandboxBackend['run'] = (sandbox, { onOutput, ...command }) => {
      onOutput?.('stderr', 'bash: warning: setlocale: cannot change locale\n');
      const inPieces: typeof onOutput = (stream, text) => [...text].forEach((piece) => onOutput?.(stream, piece));
      return real.run(sandbox, { ...command, onOutput: inPieces });
    };
    expect(await runCheck({ ...real, run }, checkOf(APART), signal)).toMatchObject({ outcome: 'passed', reason: null });
  },
);

/** Some commands of busybox know fewer options than those of GNU. */
const OF_BUSYBOX = [
  'head() { case $2 in *[!0-9]*) echo "head: invalid number" >&2; return 1; esac; command head "$@"; }',
  'cut() { case $1 in -z) echo "cut: unrecognized option: z" >&2; return 1; esac; command cut "$@"; }',
].join('; ');
const WARNING = 'echo "bash: warning: setlocale: LC_ALL: cannot change locale (en_US.UTF-8)" >&2';

/** Real sandboxes that keep a sentence in an unusual way. */
const SOUND: [string, string, (real: SandboxBackend) => SandboxBackend['run']][] = [
  ...[STARTS, DISK].map((sentence): (typeof SOUND)[number] => [
    'whose commands are those of busybox',
    sentence,
    withScripts((script) => `${OF_BUSYBOX}; ${script}`),
  ]),
  ...[
    'standard output and error are told apart, and standard input is the file that it is given, or empty',
    'output is passed on while the program runs',
    'a program that prints more than its limit is ended, and the first part is kept',
    'a cancelled program is ended, with everything that it started',
    'two sandboxes see nothing of each other',
  ].map((sentence): (typeof SOUND)[number] => [
    'whose shell warns of its language',
    sentence,
    withScripts((script) => `${WARNING}; sleep 0.3; ${script}`),
  ]),
  ['without abstract Unix sockets', APART, withScripts((script) => script.replaceAll('socket.AF_UNIX', '12345'))],
  ['without loopback', APART, withScripts((script) => script.replaceAll('127.0.0.1', '192.0.2.1'))],
];

it.skipIf(isMissing).each(SOUND)('a kind %s passes a check: %s', async (_, sentence, changed) => {
  const real = await openBackend({ kind: 'bubblewrap' });
  const result = await runCheck({ ...real, run: changed(real) }, checkOf(sentence), signal);
  expect(result).toMatchObject({ outcome: 'passed', reason: null });
});

/** Changes each script of bash or Python before it is run. */
function withScripts(change: (script: string) => string): (real: SandboxBackend) => SandboxBackend['run'] {
  return (real) =>
    (sandbox, { argv: [program = '', option = '', script = '', ...others], ...command }) =>
      real.run(sandbox, { ...command, argv: [program, option, change(script), ...others] });
}
