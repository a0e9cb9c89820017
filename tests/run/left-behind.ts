import { readdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { folderElsewhere } from '../../cli/supervisor/components/postgres-home.ts';
import { down } from '../../cli/supervisor/down.ts';
import { endGroup, identify } from '../../cli/supervisor/processes.ts';
import { sleep } from '../../core/sleep.ts';

/** A process that is about to end by itself gets this long. */
const ENDS_WITHIN_MS = 5_000;

/**
 * Ends the deployments and processes whose folders are in this one, because interrupted tests cannot end theirs. Returns the commands of the processes,
 * which a test left behind if none was interrupted.
 */
export async function endLeftBehind(folder: string): Promise<string[]> {
  for (let waited = 0; waited < ENDS_WITHIN_MS && processesOf(folder).length > 0; waited += 100) await sleep(100);
  const left = processesOf(folder).map((pid) => commandOf(pid));
  for (const name of readdirSync(folder)) {
    await down(path.join(folder, name));
    rmSync(folderElsewhere(path.join(folder, name)), { recursive: true, force: true });
  }
  await Promise.all(processesOf(folder).map((pid) => endGroup(identify(Number(pid)), 'SIGTERM', 5_000)));
  return left;
}

const processesOf = (folder: string): string[] =>
  readdirSync('/proc').filter((name) => /^\d+$/.test(name) && name !== String(process.pid) && isOf(folder, name));

function isOf(folder: string, pid: string): boolean {
  try {
    const said = ['environ', 'cmdline'].map((file) => readFileSync(`/proc/${pid}/${file}`, 'latin1')).join('\0');
    return said.includes(`${folder}/`) || said.includes(`TMPDIR=${folder}\0`);
  } catch {
    return false;
  }
}

function commandOf(pid: string): string {
  try {
    return `${pid} ${readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim()}`.slice(0, 200);
  } catch {
    return pid;
  }
}
