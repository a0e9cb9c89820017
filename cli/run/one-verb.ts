import { TrialgateError } from '../../core/errors.ts';
import type { Database } from '../../store/database.ts';

/**
 * Does a verb of a run while no other gateway does one of it.
 * @throws TrialgateError `bad_input` while another one does; then nothing was changed
 */
export async function oneVerb<T>(db: Database, runId: string, body: () => Promise<T>): Promise<T> {
  const client = await db.$client.connect();
  try {
    const key = `trialgate verb ${runId}`;
    const { rows } = await client.query('select pg_try_advisory_lock(hashtextextended($1, 0)) as taken', [key]);
    if (rows[0]?.taken === true) return await body();
    throw new TrialgateError(
      'bad_input',
      `run ${runId} has not yet answered to what another gateway was asked: nothing was changed, try again when it has`,
    );
  } finally {
    // The lock ends with its connection.
    client.release(true);
  }
}
