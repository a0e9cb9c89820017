import { and, eq } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { attempts } from '../schema.ts';

/** Records the most bytes that an attempt's sandbox had on the disk. */
export async function recordDisk(
  db: Database,
  { trialId, attempt, diskBytes }: { trialId: string; attempt: number; diskBytes: number },
): Promise<void> {
  await db
    .update(attempts)
    .set({ diskBytes })
    .where(and(eq(attempts.trialId, trialId), eq(attempts.attempt, attempt)));
}
