import { readdir } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { temporaryHome } from '../../../tests/support/harness/sandbox-fixtures.ts';
import { deploymentId, sandboxLabel } from './deployment-id.ts';

it('processes that ask for a deployment’s id at the same time get the same one, and another folder has another', async () => {
  await using folder = await temporaryHome();
  await using other = await temporaryHome();
  const ids = await Promise.all(Array.from({ length: 8 }, () => deploymentId(folder.home)));
  expect(new Set(ids).size).toBe(1);
  expect((await readdir(folder.home)).filter((name) => name.startsWith('deployment-id'))).toEqual(['deployment-id']);
  const [id = ''] = ids;
  expect(sandboxLabel(id, 't.1@home')).not.toBe(sandboxLabel(await deploymentId(other.home), 't.1@home'));
});
