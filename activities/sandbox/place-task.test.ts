import { expect, test } from 'vitest';
import { taskWith, temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { placeTask } from './place-task.ts';

const settings = { sandbox: { kind: 'bubblewrap' }, verifier_sandbox: { kind: 'bubblewrap' } } as const;

test('a plain image asks for no more than this machine’s programs, and any other is refused with what to set', async () => {
  await using folder = await temporaryHome();
  const options = { home: folder.home, signal: AbortSignal.timeout(60_000) };
  const task = await taskWith(folder.home, 'true');
  const plain = await placeTask({ ...task, image: { name: 'python:3.12' } }, settings, options);
  expect(plain).toMatchObject({ image: null, verifier: { image: null } });
  const verifier = { ...task.verifier, image: { name: 'example:1' } };
  await expect(placeTask({ ...task, verifier }, settings, options)).rejects.toThrow(
    'the image example:1: bubblewrap runs no images: set `verifier_sandbox: container`, or remove `verifier_sandbox`',
  );
  await expect(placeTask({ ...task, image: { name: 'example:1' } }, settings, options)).rejects.toThrow(
    'bubblewrap runs no images: set `sandbox: container`',
  );
});
