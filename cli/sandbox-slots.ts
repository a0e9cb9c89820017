import type { ActivitySlotInfo, CustomSlotSupplier, WorkerOptions } from '@temporalio/worker';
import type { HostSlots } from '../activities/host-slots.ts';

/**
 * A worker that asks for a trial only while this host has room for its sandbox, and only so often: trials that a full host
 * would hold up wait in the queue, where a host with room finds them. One poll at a time: each that waits may bring a trial
 * at once, whatever the rate.
 */
export function openingSandboxes(slots: HostSlots, perSecond: number): Pick<WorkerOptions, 'tuner' | 'maxActivitiesPerSecond' | 'activityTaskPollerBehavior'> {
  const activityTaskSlotSupplier: CustomSlotSupplier<ActivitySlotInfo> = {
    type: 'custom',
    reserveSlot: (_context, signal) => slots.permit(signal),
    // Eager activities: there are none, workflows run in another worker.
    tryReserveSlot: () => null,
    markSlotUsed: () => {},
    releaseSlot: ({ permit }) => slots.giveBack(permit),
  };
  const unused = { type: 'fixed-size', numSlots: 1 } as const;
  return {
    tuner: { activityTaskSlotSupplier, workflowTaskSlotSupplier: unused, localActivityTaskSlotSupplier: unused, nexusTaskSlotSupplier: unused },
    maxActivitiesPerSecond: perSecond,
    activityTaskPollerBehavior: { type: 'simple-maximum', maximum: 1 },
  };
}
