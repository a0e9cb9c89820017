import { expect, it } from 'vitest';
import type { Image, SandboxBackend } from '../backend.ts';
import { openBackend } from '../backends.ts';
import { isolation } from '../isolation.ts';
import { notStarted } from '../run-process.ts';
import { CHECKS } from './checks.ts';
import { runCheck } from './run-checks.ts';

const isMissing = (await isolation()).kind !== 'bubblewrap';

it.skipIf(isMissing)(
  'a kind of sandbox that runs no program fails every check but the one that starts none',
  async () => {
    const real = await openBackend({ kind: 'bubblewrap' });
    const idle: SandboxBackend = { ...real, run: async () => ({ ...notStarted(), reason: 'exited', exitCode: 0 }) };
    const passed: string[] = [];
    for (const check of CHECKS.filter(({ isLarge }) => !isLarge)) {
      const { sentence, outcome } = await runCheck(idle, check, new AbortController().signal);
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
  const check = CHECKS.find(({ sentence }) => sentence === 'output is passed on while the program runs');
  if (check === undefined) throw new Error('there is no such check');
  expect(await runCheck(backend, check, new AbortController().signal, image)).toMatchObject({ outcome: 'passed' });
  expect(seen).toEqual(['an image', 'yes']);
});
