import { Context, sleep } from '@temporalio/activity';
import type { Client } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import proto from '@temporalio/proto';
import { until } from '../harness/until.ts';
import type { FakeWorld } from './fake-activities.ts';

/** Agents that run until they are stopped. It counts how many began and how many were stopped. */
export class TirelessAgents {
  started = 0;
  stopped = 0;

  readonly run = async () => {
    this.started++;
    const beat = setInterval(() => Context.current().heartbeat(), 200);
    await sleep('1h').finally(() => {
      clearInterval(beat);
      this.stopped++;
    });
    return { outcome: null, seconds: {} };
  };
}

/** Work that fails until a test sets `isFull` to false. */
export class FullDisk {
  isFull = true;

  readonly work = async () => {
    if (this.isFull) throw ApplicationFailure.nonRetryable('the disk is full');
  };
}

/** Makes `planGroups` reopen groups as the store does: groups with unfinished trials run again. */
export function reopening(
  world: FakeWorld,
  planGroups: ReturnType<FakeWorld['general']>['planGroups'],
): typeof planGroups {
  return async (input) => {
    if (input.reopen) for (const id of world.planned) if (id.includes(`/${input.iteration}.`)) world.ended.delete(id);
    return planGroups(input);
  };
}

/**
 * Two groups of the run `id`. The second one closes during the poll that the end of the first one causes: the poll has read it as open and
 * answers only after the run has learned that its workflow has closed. `started` has the groups whose workflows began.
 */
export function closingDuringPoll(world: FakeWorld, client: Client, id: string) {
  const general = world.general();
  const [first, second] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const started: string[] = [];
  let polls = 0;
  world.runAgent = async ({ trialId }) => {
    const beat = setInterval(() => Context.current().heartbeat(), 200);
    await (trialId.startsWith(`${id}-0.1-0-`) ? first : second).promise.finally(() => clearInterval(beat));
    return { outcome: null, seconds: {} };
  };
  const own = {
    openGroup: async (plan: { id: string }) => {
      if (started.push(plan.id) === 2) first.resolve();
      return general.openGroup();
    },
    planGroups: async (input: Parameters<typeof general.planGroups>[0]) => {
      const rollout = await general.planGroups(input);
      if (++polls !== 2) return rollout;
      second.resolve();
      await until(() => knowsOfClosed(client, id, `${id}/0.1/1`));
      return rollout;
    },
  };
  return { started, own };
}

/** True when a workflow has learned, in a task that it has completed, that its child has closed. */
async function knowsOfClosed(client: Client, id: string, child: string): Promise<boolean> {
  const { EVENT_TYPE_WORKFLOW_TASK_COMPLETED: completed } = proto.temporal.api.enums.v1.EventType;
  const { events } = await client.workflow.getHandle(id).fetchHistory();
  const closed =
    events?.findIndex(
      (event) => event.childWorkflowExecutionCompletedEventAttributes?.workflowExecution?.workflowId === child,
    ) ?? -1;
  return closed >= 0 && events?.slice(closed).some(({ eventType }) => eventType === completed) === true;
}
