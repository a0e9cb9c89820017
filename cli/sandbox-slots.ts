import type { ActivitySlotInfo, CustomSlotSupplier, WorkerOptions } from '@temporalio/worker';
import type { HostSlots } from '../activities/sandbox/host-slots.ts';
import type { MemoryGate } from '../activities/sandbox/memory-gate.ts';

/**
 * Returns options for a worker that takes a trial only while this host has a free slot and memory for its sandbox, and at a limited rate.
 * Trials that a full host would delay wait in the queue, where another host finds them. There is only one poller, because each
 * waiting poll may bring a trial at once, whatever the rate.
 */
export function sandboxSlotOptions(
  slots: HostSlots,
  perSecond: number,
  memory: MemoryGate | null,
): Pick<WorkerOptions, 'tuner' | 'maxActivitiesPerSecond' | 'activityTaskPollerBehavior'> {
  const activityTaskSlotSupplier: CustomSlotSupplier<ActivitySlotInfo> = {
    type: 'custom',
    reserveSlot: async (_context, signal) => {
      const permit = await slots.permit(signal);
      await memory?.pass(() => slots.taken <= 1, signal);
      return permit;
    },
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
