import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { runs } from '../../store/schema.ts';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { constrainedNotices, readConstrainedWarnings } from './constrained-calls.ts';
import { show } from './show.ts';

const store = useDatabase();
const showRun = (json: boolean) => show(store.db, 'run', json, async () => null);

async function record(trialId: string, sampling: Record<string, unknown>, untrainable: string | null): Promise<void> {
  await recordCalls(store.db, [callRecord({ trialId, sampling, choice: { untrainable } })]);
}

test('`show` and `status` warn of calls that an enforced grammar makes untrainable, and of no others', async () => {
  const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });
  await store.db.insert(runs).values([
    { id: 'run', config },
    { id: 'other', config },
  ]);
  for (const runId of ['run', 'other'])
    for (const agent of ['looker', 'writer'])
      await openAttempt(store.db, { trialId: `${runId}-${agent}`, attempt: 1, runId, agent });
  const forced = { constraints: ['tool_choice'], constrained_decoding: 'enforce', client: 'pydantic-ai/2.68.0' };
  await record('other-looker', forced, 'sampling_not_reproducible');
  await record('run-looker', { top_p: 0.5 }, 'sampling_not_reproducible');
  await record('run-looker', { ...forced, constrained_decoding: 'hint' }, null);
  await record('run-looker', forced, null);
  expect(JSON.parse(await showRun(true))).toMatchObject({ constrained_calls: [] });
  expect(await showRun(false)).not.toContain('WARNING');
  for (let i = 0; i < 2; i++) await record('run-looker', forced, 'sampling_not_reproducible');
  await record(
    'run-writer',
    { ...forced, constraints: ['response_format'], client: null },
    'sampling_not_reproducible',
  );
  expect(JSON.parse(await showRun(true))).toMatchObject({
    constrained_calls: [
      { agent: 'looker', fields: ['tool_choice'], client: 'pydantic-ai/2.68.0', calls: 2 },
      { agent: 'writer', fields: ['response_format'], client: null, calls: 1 },
    ],
  });
  expect((await readConstrainedWarnings(store.db)).toSorted()).toEqual([
    expect.stringMatching(/^run other: 1 call is not trained \(agent looker\): the requests use tool_choice/),
    expect.stringMatching(/^run run: 1 call is not trained \(agent writer\): the requests use response_format/),
    expect.stringMatching(/^run run: 2 calls are not trained \(agent looker\): the requests use tool_choice/),
  ]);
  expect(await showRun(false)).toMatch(
    /WARNING: 2 calls are not trained \(agent looker\): the requests use tool_choice \(pydantic-ai: output_type\), .* Set `constrained_decoding: hint`/,
  );
});

test('an agent whose calls name ever different clients causes only a few warnings', () => {
  const found = Array.from({ length: 50 }, (_, i) => ({
    agent: 'looker',
    fields: ['tool_choice'],
    client: `client ${i}`,
    calls: 2,
  }));
  const notices = constrainedNotices(found);
  expect(notices).toHaveLength(6);
  expect(notices.at(-1)).toMatch(/^90 calls are not trained for the same reason/);
});
