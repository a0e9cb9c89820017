import { expect, test } from 'vitest';
import { useTokenGateway } from '../testing/token-gateway.ts';
import { CLIENTS } from './all.ts';
import { install } from './install.ts';
import { runClient } from './run.ts';
import { recordedOf } from './session.ts';
import { play } from './toy.ts';

const gateway = useTokenGateway({ settings: { idleMs: 60_000, holdMs: 10_000, storeWaitMs: 10_000 } });

// Against the toy engine, which says what each needs to hear to go on to its end: turns of an engine on two cores would take minutes.
test.for(CLIENTS)('$name does not come to its end, or a call of it is not recorded exactly', { timeout: 300_000 }, async (client, { skip, signal }) => {
  const folder = await install(client, AbortSignal.any([signal, AbortSignal.timeout(240_000)])).catch((error: unknown) => skip(`${client.name} does not install: ${String(error)}`));
  play(gateway.toy, client);
  const trial = await gateway.trial({ trialId: client.name, sampling: { temperature: 1 } });
  const ran = await runClient(client, { folder, trialUrl: `${gateway.gateway.url}/${client.name}`, key: trial.key, limitMs: 120_000 });
  expect([ran.code, ran.timedOut], ran.output.slice(-2_000)).toEqual([0, false]);
  const read = async (path: string) => gateway.json(await gateway.admin('GET', `/sessions/${client.name}${path}`));
  const recorded = recordedOf(await read(''), await read('/samples'));
  const asked = gateway.toy.generated;
  expect(recorded).toMatchObject({ calls: asked.length, unfinished: 0, realigned: 0, untrainable: 0 });
  expect(recorded.protocols).toContain(client.protocol);
  expect(recorded.clean > 0).toBe(client.rewrites !== true);
  expect(recorded.calls).toBeGreaterThan(1);
  // Every call that does not go on from another begins a sample, and all that was sampled is in one.
  expect(recorded.samples).toBe(recorded.calls - recorded.clean);
  expect(recorded.trained).toBe(asked.reduce((sum, { completion }) => sum + completion.length, 0));
});
