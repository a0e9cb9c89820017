import type { Imported } from './import-rows.ts';

/** Returns the lines of what was imported, and of what was not and why. */
export function importReport({ folder, tasks, refused }: Imported): string {
  const lines = [`${countOf(tasks.length, 'task')} in ${folder}`];
  if (refused.length > 0) lines.push(`${countOf(refused.length, 'row')} refused:`);
  return [...lines, ...refused.map(({ row, reason }) => `  ${row}: ${reason}`)].join('\n');
}

const countOf = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`;
