import { inArray } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { readEngineSpeeds, type EngineSpeed } from '../../store/queries/read-engine-speeds.ts';
import { runs } from '../../store/schema.ts';

/** A sound engine on two processor cores makes about 0.7 for each of 64 calls at once (bench/results/quickstarts.txt). */
const SLOW_TOKENS_PER_SECOND = 0.5;
const LONG_WAIT_SECONDS = 60;

/** Returns a sentence for each engine that is slow or stuck: how slow it is, and what to look at. */
export const slowEngineWarnings = (speeds: readonly EngineSpeed[]): string[] =>
  speeds.flatMap(({ engine, tokens_per_second: speed, waiting, longest_wait }) => {
    const isSlow = speed !== null && speed < SLOW_TOKENS_PER_SECOND;
    if (!isSlow && longest_wait < LONG_WAIT_SECONDS) return [];
    const makes = speed === null ? 'has answered no call yet' : `makes ${speed.toFixed(1)} tokens/s a call`;
    const waits =
      waiting === 0
        ? ''
        : `, and ${waiting} of its calls wait for their first token, the longest for ${Math.round(longest_wait)} s`;
    return [
      `the engine ${engine} ${makes}${waits}. The waits of its trials do not count towards their time (docs/run-file.md, "Waits for the engine"). Look at its log (\`npx trialgate logs\`), at what else uses its machine, at its dtype (bfloat16 is slow on processors without AVX-512), and at how many trials run at once (max_concurrent_trials)`,
    ];
  });

/** Returns the warnings of all runs under way, each with its run's name. */
export async function readSlowEngineWarnings(db: Database): Promise<string[]> {
  const underWay = await db
    .select({ id: runs.id })
    .from(runs)
    .where(inArray(runs.status, ['running', 'blocked']));
  const byRun = await Promise.all(
    underWay.map(async ({ id }) =>
      slowEngineWarnings(await readEngineSpeeds(db, id)).map((warning) => `run ${id}: ${warning}`),
    ),
  );
  return byRun.flat();
}
