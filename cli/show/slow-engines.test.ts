import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { noteLongCalls } from '../../store/queries/long-calls.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { readEngineSpeeds } from '../../store/queries/read-engine-speeds.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import { slowEngineWarnings } from './slow-engines.ts';
import { readWarnings } from './warnings.ts';

const store = useDatabase();
const ENGINE = 'http://e';
const ago = (seconds: number) => new Date(Date.now() - seconds * 1000);

test('a run’s engines that are slow, or do not answer, are named with their speed and what to look at', async () => {
  await store.db
    .insert(runs)
    .values({ id: 'run', status: 'running', config: runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 }) });
  for (const trialId of ['a', 'b']) await openAttempt(store.db, { trialId, attempt: 1, runId: 'run' });
  expect(slowEngineWarnings(await readEngineSpeeds(store.db, 'run'))).toEqual([]);
  await recordCalls(store.db, [
    callRecord({
      ...{ trialId: 'a', stream: true, engine: ENGINE, startedAt: ago(100), firstTokenAt: ago(100) },
      choice: { completionTokenIds: new Int32Array(20) },
    }),
  ]);
  await noteLongCalls(store.db, [
    {
      ...{ callId: randomUUID(), trialId: 'b', attempt: 1, runId: 'run', engine: ENGINE },
      ...{ stream: true, constrained: false, startedAt: ago(90), firstTokenAt: null, tokens: 0 },
    },
  ]);
  const speeds = await readEngineSpeeds(store.db, 'run');
  expect(speeds).toMatchObject([{ engine: ENGINE, waiting: 1 }]);
  expect(speeds[0]?.tokens_per_second).toBeCloseTo(0.2, 1);
  const [warning] = slowEngineWarnings(speeds);
  expect(warning).toMatch(
    /^the engine http:\/\/e makes 0\.2 tokens\/s a call, and 1 of its calls wait .* the longest for 9\d s/,
  );
  expect(await readWarnings(store.db)).toEqual([`run run: ${warning}`]);
});
