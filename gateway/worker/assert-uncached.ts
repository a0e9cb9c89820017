import type { Database } from '../../store/database.ts';
import { TrialgateError } from '../../core/errors.ts';
import { isTransient } from '../../core/transient.ts';
import type { Isolate } from './isolate.ts';

/** Each execution has another result, and the text looks like a read that may be cached, because it names no volatile function. */
const NEWEST = 'select max(query_start)::text as at from pg_stat_activity where pid > $1';

/**
 * Hyperdrive caches for a minute by default and does not tell. So an isolate sends the same query twice before anything else. With a cache
 * it would read old states of conversations and attempts. @throws TrialgateError `missing_prerequisite`
 */
export async function assertUncached(db: Database, isolate: Isolate): Promise<void> {
  if (isolate.isUncached) return;
  const ask = async () => (await db.$client.query<{ at: string | null }>(NEWEST, [0])).rows[0]?.at;
  try {
    const [first, second] = [await ask(), await ask()];
    if (first && first === second) {
      throw new TrialgateError('missing_prerequisite', 'Hyperdrive caches queries: `wrangler hyperdrive update ID --caching-disabled true`');
    }
    isolate.isUncached = true;
  } catch (error) {
    // Without a database no request is answered, and the next request checks again.
    if (!isTransient(error)) throw error;
  }
}
