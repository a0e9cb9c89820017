import { expect, test } from 'vitest';
import { ASK, eventually, useGatewayOnServer } from '../../tests/support/harness/gateways.ts';
import { readGatewayEvidence } from './read-gateway-evidence.ts';

const gateway = useGatewayOnServer();

test('a call that the engine refused for want of a tool parser is evidence of a fault of the engine, with what to do', async () => {
  await gateway.restart();
  const trial = await gateway.trial();
  gateway.engine.fault = 'no_tool_parser';
  expect((await trial.chat(ASK)).status).toBe(400);
  const ended = { trialId: trial.id, attempt: 1, gatewayFailedAt: null };
  expect((await readGatewayEvidence(gateway.db, ended)).unanswered).toEqual({
    fault: 'engine',
    reason: expect.stringMatching(/^engine_400: .* start vLLM with --enable-auto-tool-choice --tool-call-parser NAME/),
  });
});

test('a call that was refused because PostgreSQL was away is evidence of a fault of the store, until the agent gets an answer', async () => {
  await gateway.restart({ settings: { storeWaitMs: 500 } });
  const trial = await gateway.trial();
  const ended = { trialId: trial.id, attempt: 1, gatewayFailedAt: null };
  expect((await readGatewayEvidence(gateway.db, ended)).unanswered).toBeNull();

  await gateway.postgres.stop('kill');
  const refused = await trial.chat(ASK);
  expect([refused.status, (await refused.json()).error.code]).toEqual([503, 'store_unavailable']);
  await gateway.postgres.start();

  await eventually(async () => (await readGatewayEvidence(gateway.db, ended)).unanswered !== null);
  expect((await readGatewayEvidence(gateway.db, ended)).unanswered).toEqual({
    fault: 'store',
    reason: expect.stringContaining('store_unavailable: '),
  });
  expect((await readGatewayEvidence(gateway.db, { ...ended, attempt: 2 })).unanswered).toBeNull();

  await eventually(async () => (await trial.chat(ASK)).status === 200);
  expect((await readGatewayEvidence(gateway.db, ended)).unanswered).toBeNull();
});
