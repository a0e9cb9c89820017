import type { Database } from '../../../store/database.ts';
import { requireSecret } from '../../../store/queries/require-secret.ts';
import { TrialgateError } from '../../../core/errors.ts';
import { isTransient } from '../../../core/transient.ts';
import type { Isolate } from './isolate.ts';

/** Checks the deployment before an isolate answers its first request, because a Worker has no startup step. @throws TrialgateError `missing_prerequisite` */
export async function checkDeployment(db: Database, secret: string, isolate: Isolate): Promise<void> {
  isolate.isUncached ||= await passes(() => requireUncached(db));
  isolate.isSecretKnown ||= await passes(() => requireSecret(db, secret));
}

/** Returns false when the database cannot be reached. Then no request is answered, and the next request checks again. */
async function passes(check: () => Promise<void>): Promise<boolean> {
  try {
    await check();
    return true;
  } catch (error) {
    if (isTransient(error)) return false;
    throw error;
  }
}

/** Each execution has another result, and the text looks like a read that may be cached, because it names no volatile function. */
const NEWEST = 'select max(query_start)::text as at from pg_stat_activity where pid > $1';

/**
 * Hyperdrive caches for a minute by default and does not tell, so this sends the same query twice. With a cache an isolate would read old
 * states of conversations and attempts.
 */
async function requireUncached(db: Database): Promise<void> {
  const ask = async () => (await db.$client.query<{ at: string | null }>(NEWEST, [0])).rows[0]?.at;
  const [first, second] = [await ask(), await ask()];
  if (first && first === second) {
    throw new TrialgateError(
      'missing_prerequisite',
      'Hyperdrive caches queries: `wrangler hyperdrive update ID --caching-disabled true`',
    );
  }
}
