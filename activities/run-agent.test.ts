import { MockActivityEnvironment } from '@temporalio/testing';
import { Client, Connection } from '@temporalio/client';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { describe, expect, test } from 'vitest';
import { openDatabase } from '../store/database.ts';
import { ASK, SECRET, useGateway } from '../gateway/testing/harness.ts';
import { HostSandboxes } from './host-sandboxes.ts';
import { runAgent } from './run-agent.ts';
import { taskWith, temporaryHome } from './sandbox/testing/fixtures.ts';

test('an agent that crashed because its gateway died is judged by what it left', async () => {
  await using folder = await temporaryHome();
  const task = await taskWith(folder.home, 'true');
  const gateway = createServer((request, response) => {
    if (request.method === 'GET') return void response.end();
    response.writeHead(404).end('no such trial', () => gateway.close().closeAllConnections());
  });
  await once(gateway.listen(0, '127.0.0.1'), 'listening');
  const address = gateway.address();
  const key = { trialId: 't', attempt: 1 };
  const sandboxes = new HostSandboxes(folder.home, 1);
  await sandboxes.open(key, task, new AbortController().signal);
  // Neither is asked: what cannot answer has no say in it.
  const [db, temporal] = [openDatabase('postgres://nobody@127.0.0.1:9/none'), new Client({ connection: Connection.lazy() })];
  const gatewayUrls = [`http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`];
  const deps = { db, temporal, gatewayUrls, home: folder.home, secret: 'a secret of sixteen characters', hostQueue: 'host', sandboxes };
  const end = await new MockActivityEnvironment().run(runAgent(deps), { ...key, seconds: 20, agent: 'oneshot' });
  expect(end).toMatchObject({ outcome: 'infra_error', reason: expect.stringContaining('the gateway refused') });
  expect(sandboxes.slots.free).toBe(1);
});

describe('an agent in front of a gateway', () => {
  const gateway = useGateway();

  async function endOf(agent: string, trial: { id: string; attempt: number }, gatewayUrl = gateway.gateway.url) {
    await using folder = await temporaryHome();
    const task = await taskWith(folder.home, 'true');
    const key = { trialId: trial.id, attempt: trial.attempt };
    const sandboxes = new HostSandboxes(folder.home, 1);
    await sandboxes.open(key, task, new AbortController().signal);
    const temporal = new Client({ connection: Connection.lazy() });
    const deps = { db: gateway.db, temporal, gatewayUrls: [gatewayUrl], home: folder.home, secret: SECRET, hostQueue: 'host', sandboxes };
    const end = await new MockActivityEnvironment().run(runAgent(deps), { ...key, agent });
    await sandboxes.close(key);
    return end;
  }

  test('a trial whose calls are used up is verified as if it had ended by itself', async () => {
    const trial = await gateway.trial({ budgets: { calls: 1 } });
    expect(await endOf('repair', trial)).toMatchObject({ outcome: 'truncated', reason: 'budget_exhausted' });
    expect((await trial.calls()).filter((call) => call.finishReason === 'stop')).toHaveLength(1);
  });

  test.each([
    ['status_500', 'infra_error'],
    ['bad_request', 'agent_error'],
  ] as const)('an agent that died after a server error of ours is judged by what it left, or one that died of its own request is not (%s)', async (fault, outcome) => {
    const trial = await gateway.trial();
    gateway.engine.fault = fault;
    await (await trial.chat(ASK)).text();
    const refusing = createServer((request, response) => void response.writeHead(request.method === 'GET' ? 200 : 404).end());
    await once(refusing.listen(0, '127.0.0.1'), 'listening');
    const address = refusing.address();
    const url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
    expect(await endOf('oneshot', trial, url)).toMatchObject({ outcome, reason: expect.stringContaining('the gateway refused') });
    refusing.close().closeAllConnections();
  });
});
