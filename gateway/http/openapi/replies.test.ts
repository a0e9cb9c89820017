import { expect, test } from 'vitest';
import { ASK, useGateway } from '../../../tests/support/harness/gateways.ts';
import * as schemas from './schemas.ts';

const gateway = useGateway();
const TOOLS = [{ type: 'function', function: { name: 'ls', parameters: {} } }];

/** schemathesis tries trials that have no calls. This test makes the same comparison for a trial with calls. */
test('the gateway’s replies about sessions, samples and exports match the schemas of its API document exactly', async () => {
  const trial = await gateway.trial();
  await (await trial.chat({ ...ASK, tools: TOOLS })).text();
  await (await trial.chat({ ...ASK, stream: true, n: 1 })).text();
  gateway.engine.fault = 'status_500';
  await (await trial.chat(ASK)).text();
  const read = async (path: string) => (await gateway.admin('GET', path)).text();
  const told = JSON.parse(await read(`/sessions/${trial.id}`));
  expect([told.turns.length, told.unfinished.length]).toEqual([2, 1]);
  expect(schemas.session.parse(told)).toEqual(told);
  const samples = JSON.parse(await read(`/sessions/${trial.id}/samples`));
  expect(samples.samples).toHaveLength(2);
  expect(schemas.samples.parse(samples)).toEqual(samples);
  const page = JSON.parse(await read('/sessions'));
  expect(schemas.page.parse(page)).toEqual(page);
  const [line, end] = (await read('/sessions/export')).split('\n');
  expect([schemas.session.parse(JSON.parse(line ?? '')), end]).toEqual([JSON.parse(line ?? ''), '']);
  const [trained] = (await read('/sessions/export?samples=true')).split('\n');
  expect(schemas.sampleLine.parse(JSON.parse(trained ?? ''))).toEqual(JSON.parse(trained ?? ''));
});
