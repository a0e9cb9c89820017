import { expect } from 'vitest';
import { startRun } from '../../../cli/run/start-run.ts';
import type { PublishInput } from '../../../core/gpu-contract.ts';
import { runConfig } from '../../../core/run-config/run-config.ts';
import type { Database } from '../../../store/database.ts';
import { replicas } from '../../../store/schema.ts';
import { hold } from '../../histories/stage.ts';
import { confirmedReplicas } from '../fakes/confirmed-replicas.ts';
import { FakeWorld } from '../fakes/fake-activities.ts';
import type { FakeEngine } from '../fakes/fake-engine.ts';
import { poolOver, recordsOver } from './records-over.ts';
import { taskWith, temporaryHome } from './sandbox-fixtures.ts';
import { withWorkers, type Temporal } from './workflow-worker.ts';

type Place = { db: Database; environment: Temporal; engines: readonly FakeEngine[] };
type Publication = { to: string[]; inRotation: string[] };

/**
 * Starts a run over the real pool, calls `body` while its two trials wait in their rollout, and lets the run end. Returns where it published,
 * with the engines that were in rotation at that time.
 */
export async function runHeldInRollout(
  { db, environment, engines }: Place,
  runId: string,
  settings: Record<string, unknown>,
  body: () => Promise<void>,
): Promise<Publication[]> {
  await using folder = await temporaryHome();
  const { home } = folder;
  const { folder: task } = await taskWith(home, 'true');
  const world = new FakeWorld();
  const { held, free } = hold(world, /./);
  const place = { db, temporal: environment.client, home };
  const general = { ...recordsOver(world, place), ...poolOver(place) };
  const published: Publication[] = [];
  const publishPolicy = async (input: PublishInput) => {
    const { weight_version, replicas: urls } = input;
    const rows = await db.select().from(replicas);
    published.push({ to: urls, inRotation: rows.filter((row) => row.inRotation).map(({ url }) => url) });
    for (const engine of engines) if (urls.includes(engine.url)) engine.weightVersion = weight_version;
    return { replicas: confirmedReplicas(input) };
  };
  await withWorkers(
    environment,
    {
      trialgate: general,
      sandboxes: { openTrial: general.openTrial },
      host: world.host(),
      gpu: { ...world.gpu(), publishPolicy },
    },
    async () => {
      const sizes = { iterations: 1, groups_per_iteration: 1, group_size: 2 };
      const config = runConfig.parse({ model: 'm', tasks: [task], ...sizes, ...settings });
      const run = await startRun(environment.client, runId, config);
      await expect.poll(() => held.size).toBe(2);
      await body();
      free();
      await run.result();
    },
  );
  return published;
}
