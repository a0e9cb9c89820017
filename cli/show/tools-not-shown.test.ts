import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { runs } from '../../store/schema.ts';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { show } from './show.ts';

const store = useDatabase();
const showRun = (json: boolean) => show(store.db, 'run', json, async () => null);

test('`show RUN` warns of the agents whose tools the model was not shown', async () => {
  await store.db
    .insert(runs)
    .values({ id: 'run', config: runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 }) });
  for (const agent of ['plain', 'tooled'])
    await openAttempt(store.db, { trialId: agent, attempt: 1, runId: 'run', agent });
  await recordCalls(store.db, [callRecord({ trialId: 'plain' })]);
  expect(JSON.parse(await showRun(true))).toMatchObject({ tools_not_shown: [] });
  expect(await showRun(false)).not.toContain('WARNING');
  for (const tools_not_shown of [1, 2])
    await recordCalls(store.db, [callRecord({ trialId: 'tooled', sampling: { tools_not_shown } })]);
  expect(JSON.parse(await showRun(true))).toMatchObject({
    tools_not_shown: [{ agent: 'tooled', tools: 2, calls: 2 }],
  });
  expect(await showRun(false)).toMatch(/WARNING: 2 calls of agent tooled: the request has 2 tools, .* Use a model/);
});
