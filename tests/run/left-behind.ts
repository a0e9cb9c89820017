import { readdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { folderElsewhere } from '../../cli/supervisor/components/postgres-home.ts';
import { down } from '../../cli/supervisor/down.ts';
import { endGroup, identify } from '../../cli/supervisor/processes.ts';

/** Ends the deployments and processes whose folders are in this one, because interrupted tests cannot end theirs. */
export async function endLeftBehind(folder: string): Promise<void> {
  for (const name of readdirSync(folder)) {
    await down(path.join(folder, name));
    rmSync(folderElsewhere(path.join(folder, name)), { recursive: true, force: true });
  }
  const left = readdirSync('/proc').filter(
    (name) => /^\d+$/.test(name) && name !== String(process.pid) && isOf(folder, name),
  );
  await Promise.all(left.map((pid) => endGroup(identify(Number(pid)), 'SIGTERM', 5_000)));
}

function isOf(folder: string, pid: string): boolean {
  try {
    return ['environ', 'cmdline'].some((file) => readFileSync(`/proc/${pid}/${file}`, 'latin1').includes(`${folder}/`));
  } catch {
    return false;
  }
}
