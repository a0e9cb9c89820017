import type { Info } from '@temporalio/activity';
import type { ActivityInterceptors } from '@temporalio/worker';
import { AsyncLocalStorage } from 'node:async_hooks';
import { z } from 'zod';
import type { LogFields } from '../core/log.ts';

const underWay = new AsyncLocalStorage<LogFields>();

/** What an activity that is about one trial gets. */
const ofTrial = z.object({ trialId: z.string() });

/** Says what the activity is about in whose work a line is written; nothing outside of any. */
export const aboutActivity = (): LogFields => underWay.getStore() ?? {};

/** Lets the lines of each activity name its run and its trial. The ids of a run's workflows begin with the run's. */
export function followActivity({ info }: { info: Pick<Info, 'workflowExecution'> }): ActivityInterceptors {
  const [run_id] = info.workflowExecution?.workflowId.split('/') ?? [];
  return {
    inbound: {
      execute: (input, next) => {
        const trial_id = ofTrial.safeParse(input.args[0]).data?.trialId;
        const about = { ...(run_id ? { run_id } : {}), ...(trial_id === undefined ? {} : { trial_id }) };
        return underWay.run(about, () => next(input));
      },
    },
  };
}
