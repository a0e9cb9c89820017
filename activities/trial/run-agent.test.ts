import { MockActivityEnvironment } from '@temporalio/testing';
import { Client, Connection } from '@temporalio/client';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { openDatabase, type Database } from '../../store/database.ts';
import { ASK, SECRET, useGateway } from '../../tests/support/harness/gateways.ts';
import { Graders } from '../reward/graders.ts';
import { openBackend } from '../sandbox/backends.ts';
import { HostSandboxes } from '../sandbox/host-sandboxes.ts';
import type { Fault } from '../../tests/support/fakes/fake-engine.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import { readGatewayEvidence } from './read-gateway-evidence.ts';
import { runAgent, type AgentEnd } from './run-agent.ts';
import { isolation } from '../sandbox/isolation.ts';
import { taskWith, temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';

type Place = {
  db: Database;
  gatewayUrl: string;
  network?: 'gateway' | 'host';
  onSandbox?: (root: string) => void;
  onHeartbeat?: (details: unknown) => void;
};

async function endOf(
  agent: string,
  trial: { id: string; attempt: number },
  { db, gatewayUrl, network, onSandbox, onHeartbeat }: Place,
): Promise<AgentEnd> {
  await using folder = await temporaryHome();
  const task = await taskWith(folder.home, 'true');
  const key = { trialId: trial.id, attempt: trial.attempt };
  const sandboxes = new HostSandboxes(folder.home, 1);
  await sandboxes.open(
    key,
    { task, network: network ?? null, backend: await openBackend(), image: null, verifier: null },
    new AbortController().signal,
  );
  if (onSandbox) await sandboxes.use(key, async ({ sandbox }) => onSandbox(sandbox.root));
  const temporal = new Client({ connection: Connection.lazy() });
  const deps = {
    db,
    temporal,
    gatewayUrls: [gatewayUrl],
    home: folder.home,
    secret: SECRET,
    hostQueue: 'host',
    sandboxes,
    graders: new Graders(folder.home),
  };
  const environment = new MockActivityEnvironment();
  if (onHeartbeat) environment.on('heartbeat', onHeartbeat);
  const end: AgentEnd = await environment.run(runAgent(deps), { ...key, agent, seconds: 20 });
  await sandboxes.close(key);
  expect(sandboxes.slots.free).toBe(1);
  return end;
}

/** A gateway that is healthy and knows no trial; with `dies` it ends at the first call. */
async function refusingGateway({ dies = false } = {}) {
  const server = createServer((request, response) => {
    if (request.method === 'GET') return void response.end();
    response.writeHead(404).end('no such trial', () => dies && server.close().closeAllConnections());
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const address = server.address();
  return {
    url: `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`,
    [Symbol.dispose]: () => server.close().closeAllConnections(),
  };
}

test('an attempt whose agent crashed because the gateway died ends as infra_error', async () => {
  using refusing = await refusingGateway({ dies: true });
  // The store is not asked, because it may be down together with the gateway.
  const db = openDatabase('postgres://nobody@127.0.0.1:9/none');
  const end = await endOf('oneshot', { id: 't', attempt: 1 }, { db, gatewayUrl: refusing.url });
  expect(end).toMatchObject({
    outcome: 'infra_error',
    evidence: 'gateway',
    reason: expect.stringContaining('the gateway refused'),
  });
});

test.skipIf((await isolation()).kind !== 'bubblewrap')(
  'a run with `network: host` gives its agents the host’s network, and the worker’s log warns of it',
  async () => {
    const warned = vi.spyOn(console, 'warn').mockImplementation(() => {});
    onTestFinished(() => warned.mockRestore());
    let root = '';
    const confined: boolean[] = [];
    const server = createServer((request, response) => {
      if (request.method === 'POST') confined.push(existsSync(join(root, 'gateway.sock')));
      response.writeHead(request.method === 'POST' ? 404 : 200).end();
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    onTestFinished(() => void server.close().closeAllConnections());
    const address = server.address();
    const gatewayUrl = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
    // The store's answer about the calls does not matter here.
    const db = openDatabase('postgres://nobody@127.0.0.1:9/none');
    for (const network of ['gateway', 'host'] as const) {
      await endOf(
        'oneshot',
        { id: 't', attempt: 1 },
        { db, gatewayUrl, network, onSandbox: (folder) => (root = folder) },
      ).catch(() => null);
    }
    expect(confined).toEqual([true, false]);
    const warnings = warned.mock.calls.flat().filter((line) => String(line).includes('network: host'));
    expect(warnings).toEqual([expect.stringMatching(/WARNING: the agent oneshot .*network: host/)]);
  },
);

describe('an agent with a gateway and a fake engine', () => {
  const gateway = useGateway();

  test('a trial whose budget of calls is used up ends as truncated, however its agent exits', async () => {
    const trial = await gateway.trial({ budgets: { calls: 1 } });
    expect(await endOf('repair', trial, { db: gateway.db, gatewayUrl: gateway.gateway.url })).toMatchObject({
      outcome: 'truncated',
      reason: 'budget_exhausted',
    });
    expect((await trial.calls()).filter((call) => call.finishReason === 'stop')).toHaveLength(1);
  });

  test('what Temporal keeps of an attempt, its end and its heartbeats, holds neither its key nor the secret', async () => {
    const trial = await gateway.trial();
    const kept: unknown[] = [];
    const onHeartbeat = (details: unknown) => kept.push(details);
    kept.push(await endOf('oneshot', trial, { db: gateway.db, gatewayUrl: gateway.gateway.url, onHeartbeat }));
    // The agent had its key, so the key was computed.
    expect((await trial.calls()).map(({ status }) => status)).toContain('completed');
    const text = JSON.stringify(kept);
    expect([trial.key, SECRET].filter((word) => text.includes(word))).toEqual([]);
  });

  /** Returns the end of an attempt whose agent crashed after these calls. `faults` has the engine's fault in each call. */
  async function crashedAfter(...faults: Fault[]) {
    const trial = await gateway.trial({ runId: 'run' });
    await gateway.givePool('run', 'default');
    for (const fault of faults) {
      gateway.engine.fault = fault;
      await (await trial.chat(ASK)).text();
    }
    gateway.engine.fault = 'none';
    using refusing = await refusingGateway();
    return await endOf('oneshot', trial, { db: gateway.db, gatewayUrl: refusing.url });
  }

  test.each<[Fault[], Partial<AgentEnd>]>([
    [['dead'], { outcome: 'infra_error', evidence: 'engine' }],
    [['status_503'], { outcome: 'infra_error', evidence: 'engine' }],
    [['dead', 'bad_request'], { outcome: 'infra_error', evidence: 'engine' }],
    // A healthy engine answers with an error twice, for example to `structured_outputs: {grammar: "root ::= root"}`.
    [['status_500'], { outcome: 'agent_error' }],
    [['bad_request'], { outcome: 'agent_error' }],
    [['dead', 'none'], { outcome: 'agent_error' }],
  ])(
    'an attempt whose agent crashed after calls in which the fake engine had the faults %j ends as %j',
    async (faults, expected) => {
      const end = await crashedAfter(...faults);
      expect(end).toMatchObject({ ...expected, reason: expect.stringContaining('the gateway refused') });
      expect(end.evidence).toBe(expected.evidence);
    },
  );

  test('a gateway that did not take an agent’s connection counts as failed until it answers a later call of the agent', async () => {
    const trial = await gateway.trial();
    const ended = { trialId: trial.id, attempt: 1, gatewayFailedAt: Date.now() };
    expect(await readGatewayEvidence(gateway.db, ended)).toMatchObject({ hasGatewayFailed: true });
    expect((await trial.chat(ASK)).status).toBe(200);
    expect(await readGatewayEvidence(gateway.db, ended)).toMatchObject({ hasGatewayFailed: false });
    expect(await readGatewayEvidence(gateway.db, { ...ended, gatewayFailedAt: null })).toMatchObject({
      hasGatewayFailed: false,
    });
  });

  test('a trial’s third attempt that fails after an engine’s fault is agent_error when the engine answers other trials', async () => {
    await gateway.givePool('run', 'default');
    const outcomes = [];
    const trial = await gateway.trial({ trialId: 'thrice', runId: 'run' });
    for (let attempt = 1; attempt <= 3; attempt++) {
      const { key } = await gateway.trial({ trialId: trial.id, attempt });
      gateway.engine.fault = 'status_503';
      await (await gateway.chat(trial.id, key, ASK)).text();
      gateway.engine.fault = 'none';
      using refusing = await refusingGateway();
      const other = await gateway.trial({ runId: 'run' });
      expect((await other.chat(ASK)).status).toBe(200);
      const end = await endOf('oneshot', { id: trial.id, attempt }, { db: gateway.db, gatewayUrl: refusing.url });
      outcomes.push(end.outcome);
      if (end.outcome === 'infra_error')
        await sealAttempt(gateway.db, { trialId: trial.id, attempt, outcome: end.outcome, evidence: end.evidence });
    }
    expect(outcomes).toEqual(['infra_error', 'infra_error', 'agent_error']);
  });
});
