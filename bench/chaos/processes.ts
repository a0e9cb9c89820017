import { readdirSync, readFileSync } from 'node:fs';

type Row = { pid: number; parent: number };

/** Returns a process and all its descendants, in whatever groups and sessions they are. PostgreSQL's backends each have their own. */
export function familyOf(pid: number): number[] {
  const rows = readdirSync('/proc').filter((name) => /^\d+$/.test(name)).flatMap((name) => rowOf(name) ?? []);
  const below = (parent: number): number[] => rows.filter((row) => row.parent === parent).flatMap((row) => [row.pid, ...below(row.pid)]);
  return [pid, ...below(pid)];
}

/** Returns the processes other than this one whose command or environment names the folder. */
export function processesOf(folder: string): string[] {
  return readdirSync('/proc').filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid).flatMap((name) => {
    const command = read(`/proc/${name}/cmdline`);
    const isOfIt = command.includes(folder) || read(`/proc/${name}/environ`).includes(folder);
    return isOfIt ? [`${name} ${command.replaceAll('\0', ' ').slice(0, 150)}`] : [];
  });
}

function rowOf(pid: string): Row | null {
  const stat = read(`/proc/${pid}/stat`);
  const [, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return stat === '' ? null : { pid: Number(pid), parent: Number(parent) };
}

function read(file: string): string {
  try {
    return readFileSync(file, 'latin1');
  } catch {
    return '';
  }
}
