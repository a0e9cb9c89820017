import type { EvaluationSchedule } from '../run/schedule-evaluations.ts';
import { table } from './table.ts';

export function printSchedules(rows: EvaluationSchedule[], json: boolean): string {
  if (json) return JSON.stringify(rows, null, 2);
  if (rows.length === 0) return 'no evaluation is scheduled';
  return table(
    ['run', 'when', 'next'],
    rows.map(({ run, cron, paused, next }) => [run, cron, paused ? 'paused' : (next ?? '–')]),
  );
}
