import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { isolation } from './isolation.ts';
import { sandboxUser } from './sandbox-user.ts';
import { temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';

test('without bubblewrap a sandbox whose user cannot reach its folder is refused, instead of running as root', async () => {
  await using folder = await temporaryHome();
  mkdirSync(join(folder.home, 'closed'), { mode: 0o700 });
  const user = { ...(await isolation()), kind: 'user', ownUser: true } as const;
  const at = (parent: string) => ({ uid: 61_184, root: join(folder.home, parent, 't.1') });
  expect(sandboxUser(user, at('open'))).toBe(61_184);
  expect(() => sandboxUser(user, at('closed'))).toThrow(/cannot reach .*closed/);
  expect(sandboxUser({ ...user, kind: 'bubblewrap' }, at('closed'))).toBe(61_184);
});
