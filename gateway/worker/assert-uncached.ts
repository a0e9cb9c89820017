import type { Database } from '../../store/database.ts';
import { TrialgateError } from '../../store/errors.ts';
import { isTransient } from '../../store/transient.ts';
import type { Isolate } from './isolate.ts';

/** Its answer is another one each time, and it looks like a read that may be cached: no function that changes is named in it. */
const NEWEST = 'select max(query_start)::text as at from pg_stat_activity where pid > $1';

/**
 * Hyperdrive does not tell whether it caches, and by default it does, for a minute. So an isolate asks the same twice before it
 * does anything else: reads would be old, of what a conversation has said and of which attempt is open.
 * @throws TrialgateError `missing_prerequisite`
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
    // Without a database nothing is answered from it, and the next request asks again.
    if (!isTransient(error)) throw error;
  }
}
