import { and, eq, not } from 'drizzle-orm';
import { networkNotice } from '../../activities/sandbox/network-notice.ts';
import { isForRuns } from '../../core/engine-url.ts';
import { TrialgateError } from '../../core/errors.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { Database } from '../../store/database.ts';
import { isDraining } from '../../store/queries/is-draining.ts';
import { DEPLOYMENT_POOL, replicas } from '../../store/schema.ts';
import { samplingNotice, type Notice } from './sampling-notice.ts';

/** Returns notices for a person before a run starts: on agents that reach more than the gateway and on calls that cannot be trained on. */
export async function runNotices(db: Database, config: RunConfig): Promise<Notice[]> {
  const network = await networkNotice(config);
  const notices = [
    network === null ? null : { text: network, nothingTrains: false },
    await samplingNotice(config, await enginesOf(db, config)),
  ];
  return notices.filter((notice) => notice !== null);
}

/**
 * Returns the engines that the run file names, otherwise those of the deployment that do not drain and that runs can use. If runs can use
 * none of them, returns all.
 */
export async function enginesOf(db: Database, { engines }: Pick<RunConfig, 'engines'>): Promise<string[]> {
  if (engines.length > 0) return engines;
  const rows = await db
    .select({ url: replicas.url })
    .from(replicas)
    .where(and(eq(replicas.pool, DEPLOYMENT_POOL), not(isDraining)));
  const urls = rows.map(({ url }) => url);
  return urls.some(isForRuns) ? urls.filter(isForRuns) : urls;
}

/**
 * Prints the run's notices as warnings.
 * @throws TrialgateError `bad_input` when no call of the run could be trained on, unless `check` is false
 */
export async function printRunNotices(
  db: Database,
  config: RunConfig,
  { check = true, report = (line) => console.error(line) }: { check?: boolean; report?: (line: string) => void } = {},
): Promise<void> {
  for (const { text, nothingTrains } of await runNotices(db, config)) {
    if (nothingTrains && check) throw new TrialgateError('bad_input', `${text}. --no-check starts the run anyway`);
    report(`WARNING: ${text}`);
  }
}
