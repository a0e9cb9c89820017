import { TrialgateError } from '../../core/errors.ts';
import type { Database } from '../../store/database.ts';

/** A connection that is silent for a minute is taken for lost, and its lock with it. */
const BEAT_MS = 15_000;

/**
 * Does a verb of a run while no other gateway does one of it. The lock is of a session, so it does not hold through a transaction pooler.
 * @throws TrialgateError `bad_input` while another one does; then nothing was changed
 */
export async function oneVerb<T>(db: Database, runId: string, body: () => Promise<T>, beatMs = BEAT_MS): Promise<T> {
  const client = await db.$client.connect();
  let beat: ReturnType<typeof setInterval> | undefined;
  try {
    const key = `trialgate verb ${runId}`;
    const { rows } = await client.query('select pg_try_advisory_lock(hashtextextended($1, 0)) as taken', [key]);
    if (rows[0]?.taken === true) {
      let last = Promise.resolve();
      const ask = async (): Promise<void> => void (await client.query('select 1 as beat').catch(() => {}));
      beat = setInterval(() => (last = last.then(ask)), beatMs);
      return await body();
    }
    throw new TrialgateError(
      'bad_input',
      `run ${runId} has not yet answered to what another gateway was asked: nothing was changed, try again when it has`,
    );
  } finally {
    clearInterval(beat);
    // The lock ends with its connection.
    client.release(true);
  }
}
