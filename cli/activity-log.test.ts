import { expect, test } from 'vitest';
import { aboutActivity, followActivity } from './activity-log.ts';

test('what an activity prints, also from what it starts, is about its run, and about its trial if it is about one', async () => {
  const about = async (workflowId: string | undefined, input: unknown) => {
    const { inbound } = followActivity({
      info: { workflowExecution: workflowId === undefined ? undefined : { workflowId, runId: 'x' } },
    });
    return inbound?.execute?.({ args: [input], headers: {} }, async () => {
      await new Promise((resolve) => setTimeout(resolve, 1));
      return aboutActivity();
    });
  };
  expect(await about('first/0.1/3', { trialId: 'first-0.1-3-2' })).toEqual({
    run_id: 'first',
    trial_id: 'first-0.1-3-2',
  });
  expect(await about('first', { iteration: 0 })).toEqual({ run_id: 'first' });
  expect(await about(undefined, null)).toEqual({});
  expect(aboutActivity()).toEqual({});
});
