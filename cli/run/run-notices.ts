import { eq } from 'drizzle-orm';
import { networkNotice } from '../../activities/sandbox/network-notice.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { Database } from '../../store/database.ts';
import { DEPLOYMENT_POOL, replicas } from '../../store/schema.ts';
import { samplingNotice } from './sampling-notice.ts';

/** Returns notices for a person before a run starts: on agents that reach more than the gateway and on calls that cannot be trained on. */
export async function runNotices(db: Database, config: RunConfig): Promise<string[]> {
  const notices = [await networkNotice(config), await samplingNotice(config, await enginesOf(db, config))];
  return notices.filter((notice) => notice !== null);
}

/** Returns the engines that the run file names, otherwise the deployment's. */
async function enginesOf(db: Database, { engines }: RunConfig): Promise<string[]> {
  if (engines.length > 0) return engines;
  const rows = await db.select({ url: replicas.url }).from(replicas).where(eq(replicas.pool, DEPLOYMENT_POOL));
  return rows.map(({ url }) => url);
}

/** Prints the run's notices as warnings. */
export async function printRunNotices(db: Database, config: RunConfig): Promise<void> {
  for (const notice of await runNotices(db, config)) console.error(`WARNING: ${notice}`);
}
