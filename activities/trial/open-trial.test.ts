import { Client } from '@temporalio/client';
import { MockActivityEnvironment } from '@temporalio/testing';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parseRunConfig } from '../../core/run-config/parse-run-config.ts';
import { groups, runs } from '../../store/schema.ts';
import { taskWith, temporaryHome, writeFiles } from '../../tests/support/harness/sandbox-fixtures.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import type { Deps } from '../deps.ts';
import { Graders } from '../reward/graders.ts';
import { HostSandboxes } from '../sandbox/host-sandboxes.ts';
import { openTrial, samplingOf } from './open-trial.ts';

const store = useDatabase();

const RUN = { model: 'm', tasks: ['t'], iterations: 1, max_response_length: 64 };

test('a trial samples with its run file’s settings, and its engine enforces grammars unless the run file says `constrained_decoding: hint`', () => {
  expect(samplingOf(parseRunConfig(RUN, 'run'))).toEqual({
    temperature: 1,
    max_tokens: 64,
    constrained_decoding: 'enforce',
    keep_thinking: 'as_template',
  });
  expect(
    samplingOf(parseRunConfig({ ...RUN, sampling: { temperature: 0.7 }, constrained_decoding: 'hint' }, 'run')),
  ).toMatchObject({ temperature: 0.7, max_tokens: 64, constrained_decoding: 'hint' });
  expect(() => parseRunConfig({ ...RUN, constrained_decoding: 'off' }, 'run')).toThrow('constrained_decoding');
});

test('a trial has the name of its agent, which the agent’s file gives, and not the path of that file; its attempt has its host from the beginning', async () => {
  await using folder = await temporaryHome();
  const { home } = folder;
  await writeFiles(home, { 'x/agent.yaml': 'name: crew\ncommand: [x]\n' });
  const [agent, { folder: task }] = [join(home, 'x/agent.yaml'), await taskWith(home, 'true')];
  const config = parseRunConfig({ ...RUN, tasks: [task], agents: [agent] }, 'run');
  await store.db.insert(runs).values({ id: 'r', config });
  const place = { runId: 'r', kind: 'train' as const, iteration: 0, take: 1, ordinal: 0, size: 1, policyVersion: 0 };
  const group = { ...place, id: 'r/0.1/0', trialPrefix: 'r-0.1-0', task, agent };
  await store.db.insert(groups).values(group);
  const sandboxes = new HostSandboxes(home, 1);
  const deps: Deps = {
    db: store.db,
    temporal: new Client(),
    gatewayUrls: [],
    home,
    secret: '',
    hostQueue: 'host',
    sandboxes,
    graders: new Graders(home),
  };
  const key = { trialId: 'r-0.1-0-0', attempt: 1 };
  try {
    await new MockActivityEnvironment().run(openTrial(deps), { ...key, trialIndex: 0, group });
  } finally {
    await sandboxes.close(key);
  }
  expect(await store.db.query.trials.findMany()).toMatchObject([{ id: key.trialId, agent: 'crew' }]);
  // Also before it has ended.
  expect(await store.db.query.attempts.findMany()).toMatchObject([{ ...key, host: 'host', endedAt: null }]);
});
