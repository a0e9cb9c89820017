import { inArray } from 'drizzle-orm';
import { networkNotice } from '../../activities/sandbox/network-notice.ts';
import { readRun } from '../../activities/run/read-run.ts';
import type { Database } from '../../store/database.ts';
import { runs } from '../../store/schema.ts';

/** Returns a notice for each run under way whose agents reach more than the gateway. */
export async function readNetworkNotices(db: Database): Promise<string[]> {
  const underWay = await db
    .select({ id: runs.id })
    .from(runs)
    .where(inArray(runs.status, ['running', 'blocked']));
  const byRun = await Promise.all(
    underWay.map(async ({ id }) => ({ id, notice: await networkNotice(await readRun(db, id)) })),
  );
  return byRun.flatMap(({ id, notice }) => (notice === null ? [] : [`run ${id}: ${notice}`]));
}
