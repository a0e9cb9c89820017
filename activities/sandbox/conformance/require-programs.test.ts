import { chmod } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { temporaryHome, writeFiles } from '../../../tests/support/harness/sandbox-fixtures.ts';
import type { Command, Image, SandboxBackend } from '../backend.ts';
import { openBackend } from '../backends.ts';
import { isolation } from '../isolation.ts';
import { requirePrograms } from './require-programs.ts';

const isMissing = (await isolation()).kind !== 'bubblewrap';

/** Looks for the programs in a sandbox whose commands are changed so, and returns what refuses it. */
async function refusal(change: (command: Command) => Partial<Command>, image: Image | null = null): Promise<unknown> {
  await using folder = await temporaryHome();
  const real = await openBackend({ kind: 'bubblewrap' });
  const backend: SandboxBackend = {
    ...real,
    run: (sandbox, command) => real.run(sandbox, { ...command, ...change(command) }),
  };
  const options = { home: folder.home, image, signal: new AbortController().signal };
  return await requirePrograms(backend, options).catch((error: unknown) => error);
}

const withoutPrograms = ({ env }: Command): Partial<Command> => ({ env: { ...env, PATH: '/nowhere' } });
const withBashAlone = (): Partial<Command> => ({ argv: ['bash', '-c', 'PATH=/nowhere; python3'] });

it.skipIf(isMissing)(
  'a sandbox without `python3` is refused before the checks, and one without `bash` too',
  async () => {
    expect(await refusal(withBashAlone)).toMatchObject({
      code: 'bad_input',
      message: expect.stringContaining('need `bash` and `python3`, but'),
    });
    // Bubblewrap says itself that it cannot start the program.
    expect(await refusal(withoutPrograms)).toMatchObject({ code: 'missing_prerequisite' });
  },
);

it.skipIf(isMissing)('a sandbox with both, or with a program that ends otherwise, is for the checks', async () => {
  expect(await refusal(() => ({}))).toBeUndefined();
  expect(await refusal(() => ({ argv: ['bash', '-c', 'kill -KILL $$; sleep 9'] }))).toBeUndefined();
});

it.skipIf(isMissing)('a `python3` that the image has in its work folder alone is found', async () => {
  await using folder = await temporaryHome();
  await writeFiles(folder.home, { '.venv/bin/python3': '#!/bin/sh\n' });
  await chmod(join(folder.home, '.venv/bin/python3'), 0o755);
  const image: Image = { id: 'an image', workdir: '/app', files: folder.home, env: {} };
  const withItAlone = (): Partial<Command> => ({ argv: ['bash', '-c', 'PATH=/app/.venv/bin; python3 -c ""'] });
  expect(await refusal(withItAlone, image)).toBeUndefined();
  expect(await refusal(withItAlone)).toMatchObject({ code: 'bad_input' });
});
