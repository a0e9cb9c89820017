import { expect, it } from 'vitest';
import { bubblewrapBackend } from '../bubblewrap-backend.ts';
import type { Command, SandboxBackend } from '../backend.ts';
import type { Sandbox } from '../empty-sandbox.ts';
import { isolation } from '../isolation.ts';
import { temporaryHome } from '../../../tests/support/harness/sandbox-fixtures.ts';
import { CHECKS } from './checks.ts';
import { compareView } from './compare-view.ts';
import { LIMITS } from './context.ts';
import { runCheck } from './run-checks.ts';

const here = await isolation();
const backend = bubblewrapBackend(here);
const signal = new AbortController().signal;
const isWrapped = here.kind === 'bubblewrap';

it.skipIf(!isWrapped)(
  'what bubblewrap says that a program sees is all that a real sandbox has in its list of mounts and its environment',
  async () => {
    const check = CHECKS.find(({ sentence }) => sentence.includes('that the kind names beforehand'));
    if (!check) throw new Error('the check has another sentence now');
    expect(await runCheck(backend, check, signal)).toMatchObject({ outcome: 'passed', reason: null });
  },
);

it.skipIf(!isWrapped)('a file or a variable that a kind does not name, or names in another way, is found', async () => {
  await using folder = await temporaryHome();
  const sandbox = await backend.start({ home: folder.home, name: 'a.1', image: null });
  const command = { argv: ['true'], cwd: '/app', env: { A: '1' }, limits: LIMITS, mounts: [], signal };
  const lying: SandboxBackend = {
    ...backend,
    explain: async (of: Sandbox, about: Command) => {
      const view = await backend.explain(of, about);
      const mounts = view.mounts
        .filter(({ inside }) => inside !== '/logs')
        .map((mount) => (mount.inside === '/tmp' ? { ...mount, writable: false } : mount))
        .map((mount) => (mount.inside === '/app' ? { ...mount, host: sandbox.logs } : mount));
      return { ...view, mounts, env: { ...view.env, A: '2' } };
    },
  };
  const differences = await compareView(lying, sandbox, { ...command, network: { kind: 'none' } });
  expect(differences).toEqual([
    'A is 1, and not 2',
    expect.stringMatching(/^\/app is .*work of its disk, and not .*logs$/),
    '/tmp is writable',
    '/logs is mounted too',
  ]);
  await backend.destroy(folder.home, 'a.1');
});
