import { expect, test } from 'vitest';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import { Refusals } from '../http/refusals.ts';
import type { LogFields } from '../../core/log.ts';
import { Counters } from './counters.ts';
import { reportConstrained } from './recording/report-constrained.ts';
import { reportLeftOut } from './report-left-out.ts';

test('what the log says of a trial names its run, also where the trial’s id does not', async () => {
  const said: (LogFields | undefined)[] = [];
  const log = (_: string, fields?: LogFields) => void said.push(fields);
  const deps = { counters: new Counters(), log };
  const trial = { id: 'a-client-s-trial', runId: 'run' };
  reportLeftOut(deps, trial, [{ at: 'messages.0', value: { type: 'document' } }]);
  const record = callRecord({
    trialId: trial.id,
    sampling: { constraints: ['tool_choice'] },
    choice: { untrainable: 'sampling_not_reproducible' },
  });
  reportConstrained(deps, trial, record);
  const refusals = new Refusals({ write: () => Promise.reject(new Error('gone')), log, everyMs: null });
  refusals.add(trial, {
    ...{ at: new Date().toISOString(), attempt: 1, status: 400, code: 'invalid_request', request: 'POST /v1/x' },
    ...{ item: null, message: 'no', size: null, digest: null },
  });
  await refusals.close();
  expect(said.map((fields) => [fields?.level, fields?.run_id, fields?.trial_id])).toEqual([
    ...Array(3).fill(['warning', 'run', trial.id]),
    ['error', 'run', trial.id],
  ]);
});
