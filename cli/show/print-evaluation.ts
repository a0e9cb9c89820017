import type { Database } from '../../store/database.ts';
import type { EvaluationDone } from '../../workflows/evaluate-run.ts';
import { readRunRecord } from './run-record.ts';
import { evaluationLine } from './run-table.ts';

/** Returns one evaluation as `show RUN` prints it. */
export async function printEvaluation(db: Database, { runId, id }: EvaluationDone, json: boolean): Promise<string> {
  const { evaluations } = await readRunRecord(db, runId);
  const row = evaluations.find((each) => each.id === id);
  if (!row) throw new Error(`run ${runId} has no ${id}`);
  return json ? JSON.stringify(row, null, 2) : evaluationLine(row);
}
