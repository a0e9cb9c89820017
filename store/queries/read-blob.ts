import { and, eq } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { blobs } from '../schema.ts';

/** Returns a trial's blob by its SHA-256 in hex, or null. */
export async function readBlob(db: Database, trialId: string, sha256: string): Promise<Buffer | null> {
  const isIt = and(eq(blobs.trialId, trialId), eq(blobs.digest, Buffer.from(sha256, 'hex')));
  const [blob] = await db.select({ bytes: blobs.bytes }).from(blobs).where(isIt);
  return blob?.bytes ?? null;
}
