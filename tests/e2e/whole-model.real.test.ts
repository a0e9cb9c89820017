import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openDatabase } from '../../store/database.ts';
import { connectionsOf } from '../../cli/config/connections.ts';
import { INSTALLS } from '../../cli/folders.ts';
import type { RunRecord } from '../../cli/show/run-record.ts';
import { auditRun } from '../support/oracles/audit-run.ts';
import { chanceTasks } from '../support/scenarios/chance-tasks.ts';
import { TestDeployment } from '../support/harness/deployment.ts';

test('the small model, with all its layers, is sampled, trained and published, and its engine confirms the new weights', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'trialgate-whole-'));
  const deployment = await TestDeployment.create();
  try {
    await chmod(folder, 0o755);
    const config = {
      model: INSTALLS.smallModel,
      tasks: [await chanceTasks(join(folder, 'tasks'))],
      agents: ['oneshot'],
      iterations: 1,
      groups_per_iteration: 1,
      group_size: 3,
      max_response_length: 48,
      evaluation: { before: false, after: false },
    };
    const file = join(folder, 'whole.json');
    await writeFile(file, JSON.stringify(config));
    await deployment.up();
    await deployment.trialgate('train', file, '--run', 'whole');
    const record: RunRecord = JSON.parse(await deployment.trialgate('show', 'whole', '--json'));
    expect(record).toMatchObject({
      status: 'completed',
      iterations: [
        {
          status: 'done',
          policy_version: 0,
          trained_version: 1,
          skipped: null,
          batch: { trials: 3 },
          replicas: [{ weight_version: 'whole@1' }],
        },
      ],
    });
    expect(record.iterations[0]?.metrics?.['actor/grad_norm']).toBeGreaterThan(0);
    const db = openDatabase(connectionsOf(deployment.config).databaseUrl);
    expect(await auditRun(db, 'whole', 1).finally(() => db.$client.end())).toEqual([]);
  } finally {
    await deployment.remove();
    await rm(folder, { recursive: true, force: true });
  }
});
