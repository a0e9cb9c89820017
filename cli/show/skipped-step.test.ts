import { Client } from '@temporalio/client';
import { expect, test } from 'vitest';
import type { Deps } from '../../activities/deps.ts';
import { Graders } from '../../activities/reward/graders.ts';
import { HostSandboxes } from '../../activities/sandbox/host-sandboxes.ts';
import { recordVersion } from '../../activities/iteration/record-version.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import { iterations, policyVersions, runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { readRunRecord } from './run-record.ts';
import { runTable } from './run-table.ts';

const store = useDatabase();

test('`show` gives the reason of a skipped step with its iteration', async () => {
  const deps: Deps = {
    db: store.db,
    temporal: new Client(),
    gatewayUrls: [],
    home: '/',
    secret: '',
    hostQueue: '',
    sandboxes: new HostSandboxes('/', 1),
    graders: new Graders('/'),
  };
  const take = { runId: 'r', iteration: 0, take: 1 };
  const [canary, metrics] = [{ token_ids: [], logprobs: [] }, {}];
  const step = {
    step_key: 'k',
    checkpoint: '/c',
    checkpoint_sha256: 'c',
    canary,
    metrics,
    reused: false,
    skipped: 'the loss is nan',
  };
  await store.db.insert(runs).values({ id: 'r', config: runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 }) });
  await store.db.insert(iterations).values({ ...take, policyVersion: 0 });
  await store.db
    .insert(policyVersions)
    .values({ runId: 'r', version: 0, stepKey: 'base', checkpoint: '/b', checkpointSha256: 'b', canary });

  await recordVersion(deps)({ ...take, version: 1, parentVersion: 0, batchSha256: 'b', step });

  const record = await readRunRecord(store.db, 'r');
  expect(record.iterations.map(({ skipped }) => skipped)).toEqual(['the loss is nan']);
  expect(runTable(record)).toContain('iteration 0 made no update: the loss is nan');
});
