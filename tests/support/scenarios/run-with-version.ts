import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Database } from '../../../store/database.ts';
import { policyVersions, runs } from '../../../store/schema.ts';

/** Adds a run with a policy version whose checkpoint is a folder of `home`. Returns that folder. */
export async function runWithVersion(
  db: Database,
  home: string,
  runId: string,
  version: number,
  config: unknown,
): Promise<string> {
  const checkpoint = join(home, 'checkpoints', `${runId}-${version}`);
  await mkdir(join(checkpoint, 'trainer'), { recursive: true });
  await writeFile(join(checkpoint, 'trainer/exp_avg.safetensors'), 'moments');
  await writeFile(
    join(checkpoint, 'manifest.json'),
    JSON.stringify({ run_id: runId, version, checkpoint_sha256: `sha of ${runId}@${version}` }),
  );
  await db.insert(runs).values({ id: runId, config }).onConflictDoNothing();
  const canary = { token_ids: [1, 2], logprobs: [-1] };
  await db.insert(policyVersions).values({
    runId,
    version,
    stepKey: `step ${version}`,
    checkpoint,
    checkpointSha256: `sha of ${runId}@${version}`,
    canary,
  });
  return checkpoint;
}
