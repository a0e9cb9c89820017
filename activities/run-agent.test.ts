import { MockActivityEnvironment } from '@temporalio/testing';
import { Client, Connection } from '@temporalio/client';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { expect, test } from 'vitest';
import { openDatabase } from '../store/database.ts';
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
