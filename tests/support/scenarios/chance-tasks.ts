import { cp, glob, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { REPOSITORY } from '../../../core/repository.ts';

/** A verifier that draws its reward. Equal rewards would train nothing, and a shallow model solves no task. */
const BY_CHANCE = '#!/bin/bash\necho "0.$((RANDOM))" > "${LOGS_DIR:-/logs}/verifier/reward.txt"\n';

/** Writes the bundled training tasks to `folder` with a verifier that draws the reward, so that every step changes the weights. */
export async function chanceTasks(folder: string): Promise<string> {
  await cp(join(REPOSITORY, 'tasks/train'), folder, { recursive: true });
  for await (const verifier of glob(join(folder, '*/tests/test.sh'))) await writeFile(verifier, BY_CHANCE);
  return folder;
}
