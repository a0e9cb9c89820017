import { expect, it } from 'vitest';
import type { Image, SandboxBackend } from '../backend.ts';
import { openBackend } from '../backends.ts';
import { isolation } from '../isolation.ts';
import { notStarted } from '../run-process.ts';
import { CHECKS, type Check } from './checks.ts';
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

/** Real sandboxes that break one promise each, and the checks that must find it. */
const BROKEN: [string, string, (real: SandboxBackend) => SandboxBackend['run']][] = [
  [
    'shares the network of the host',
    'two sandboxes do not reach each other: no port of loopback, no abstract Unix socket',
    (real) => (sandbox, command) => real.run(sandbox, { ...command, network: { kind: 'host' } }),
  ],
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
    const check = checkOf('two sandboxes do not reach each other: no port of loopback, no abstract Unix socket');
    expect(await runCheck({ ...real, run }, check, signal)).toMatchObject({ outcome: 'passed', reason: null });
  },
);
