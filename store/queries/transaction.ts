import { eq } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { trials } from '../schema.ts';

export type Transaction = Parameters<Parameters<Database['transaction']>[0]>[0];
export type Executor = Database | Transaction;
export type TrialRow = typeof trials.$inferSelect;

/** Returns the trial's row, locked against recording and sealing until the transaction ends. */
export async function lockTrial(tx: Transaction, trialId: string): Promise<TrialRow | undefined> {
  const [trial] = await tx.select().from(trials).where(eq(trials.id, trialId)).for('update');
  return trial;
}
