import { readFileSync } from 'node:fs';
import { listPids, readProcessStat } from '../../core/process-stat.ts';

/** Returns a process and all its descendants, in whatever groups and sessions they are. PostgreSQL's backends each have their own. */
export function familyOf(pid: number): number[] {
  const rows = listPids().map((each) => ({ pid: each, parent: readProcessStat(each)?.parent }));
  const below = (parent: number): number[] =>
    rows.filter((row) => row.parent === parent).flatMap((row) => [row.pid, ...below(row.pid)]);
  return [pid, ...below(pid)];
}

/** Returns the processes other than this one whose command or environment names the folder. */
export function processesOf(folder: string): string[] {
  return listPids()
    .filter((pid) => pid !== process.pid)
    .flatMap((pid) => {
      const command = read(`/proc/${pid}/cmdline`);
      const isOfIt = command.includes(folder) || read(`/proc/${pid}/environ`).includes(folder);
      return isOfIt ? [`${pid} ${command.replaceAll('\0', ' ').slice(0, 150)}`] : [];
    });
}

function read(file: string): string {
  try {
    return readFileSync(file, 'latin1');
  } catch {
    return '';
  }
}
