import type { ActivitySlotInfo, CustomSlotSupplier, WorkerOptions } from '@temporalio/worker';
import type { HostSlots } from '../activities/sandbox/host-slots.ts';

/**
 * Returns options for a worker that takes a trial only while this host has a free slot for its sandbox, and at a limited rate.
 * Trials that a full host would delay wait in the queue, where another host finds them. There is only one poller, because each
 * waiting poll may bring a trial at once, whatever the rate.
 */
export function sandboxSlotOptions(
  slots: HostSlots,
  perSecond: number,
): Pick<WorkerOptions, 'tuner' | 'maxActivitiesPerSecond' | 'activityTaskPollerBehavior'> {
  const activityTaskSlotSupplier: CustomSlotSupplier<ActivitySlotInfo> = {
    type: 'custom',
    reserveSlot: (_context, signal) => slots.permit(signal),
    // There are no eager activities, because workflows run in another worker.
    tryReserveSlot: () => null,
    markSlotUsed: () => {},
    releaseSlot: ({ permit }) => slots.releasePermit(permit),
  };
  const unused = { type: 'fixed-size', numSlots: 1 } as const;
  return {
    tuner: {
      activityTaskSlotSupplier,
      workflowTaskSlotSupplier: unused,
      localActivityTaskSlotSupplier: unused,
      nexusTaskSlotSupplier: unused,
    },
    maxActivitiesPerSecond: perSecond,
    activityTaskPollerBehavior: { type: 'simple-maximum', maximum: 1 },
  };
}
