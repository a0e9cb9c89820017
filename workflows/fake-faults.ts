import { Context, sleep } from '@temporalio/activity';
import { ApplicationFailure } from '@temporalio/common';
import type { FakeWorld } from './fake-activities.ts';

/** Agents that work until they are stopped; how many began, and how many were stopped. */
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

/** Work that fails until somebody mends it. */
export class FullDisk {
  isFull = true;

  readonly work = async () => {
    if (this.isFull) throw ApplicationFailure.nonRetryable('the disk is full');
  };
}

/** As in the store: groups whose trials nobody finished run again. */
export function reopening(world: FakeWorld, planGroups: ReturnType<FakeWorld['general']>['planGroups']): typeof planGroups {
  return async (input) => {
    if (input.reopen) for (const id of world.planned) if (id.includes(`/${input.iteration}.`)) world.ended.delete(id);
    return planGroups(input);
  };
}
