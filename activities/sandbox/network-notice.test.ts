import { expect, test } from 'vitest';
import { agentsWithHostNetwork, networkNotice } from './network-notice.ts';

test('the notice names the agents to which a run opens the host’s network', async () => {
  expect(await networkNotice({ network: 'host', agents: ['oneshot', 'repair'] })).toMatch(/oneshot, repair reach all that this host reaches/);
  expect(await networkNotice({ network: 'gateway', agents: ['oneshot'] })).toBeNull();
});

test('no bundled agent opens the network of the host by its own file', async () => {
  expect(await agentsWithHostNetwork()).toEqual([]);
  expect(await networkNotice({ network: null, agents: ['oneshot', 'repair'] })).toBeNull();
});
