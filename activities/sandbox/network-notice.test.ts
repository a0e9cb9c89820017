import { expect, test } from 'vitest';
import { agentsWithHostNetwork, networkNotice } from './network-notice.ts';

test('a run with `network: host` gets a warning that names its agents', async () => {
  expect(await networkNotice({ network: 'host', agents: ['oneshot', 'repair'] })).toMatch(
    /oneshot, repair reach all that this host reaches/,
  );
  expect(await networkNotice({ network: 'gateway', agents: ['oneshot'] })).toBeNull();
});

test('no agent in `agents/` gets the host’s network by its own agent file', async () => {
  expect(await agentsWithHostNetwork()).toEqual([]);
  expect(await networkNotice({ network: null, agents: ['oneshot', 'repair'] })).toBeNull();
});
