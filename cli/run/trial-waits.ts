import { defaultPayloadConverter } from '@temporalio/common';
import { WorkflowNotFoundError, type Client } from '@temporalio/client';
import proto from '@temporalio/proto';
import { z } from 'zod';
import { OPENING_STEPS, type OpeningStep } from '../../core/trial-waits.ts';
import type { RunStatusReport } from '../../workflows/messages.ts';

/** The number of a run's trials by what they wait for. `host_slot` waits for a host with room; `opening` has not reported its step yet. */
export type TrialWaits = Record<'host_slot' | 'opening' | OpeningStep | 'agent' | 'verifier' | 'engines', number>;

const step = z.enum(OPENING_STEPS);

/** Counts where the trials of a run's open groups are, from the activities that they wait for. */
export async function readTrialWaits(client: Client, { groups }: RunStatusReport): Promise<TrialWaits> {
  const waits: TrialWaits = {
    ...{ host_slot: 0, opening: 0, engine_room: 0, packages: 0, image: 0, start_turn: 0, start: 0 },
    ...{ agent: 0, verifier: 0, engines: 0 },
  };
  const open = groups.filter(({ state }) => state === 'running');
  const pending = await Promise.all(open.map(({ id }) => pendingOf(client, id)));
  for (const activity of pending.flat()) {
    const place = placeOf(activity);
    if (place !== null) waits[place] += 1;
  }
  return waits;
}

type Activity = proto.temporal.api.workflow.v1.IPendingActivityInfo;

async function pendingOf(client: Client, workflowId: string): Promise<Activity[]> {
  // A group may have ended since the run's last poll.
  const description = await client.workflow
    .getHandle(workflowId)
    .describe()
    .catch((error: unknown) => {
      if (error instanceof WorkflowNotFoundError) return null;
      throw error;
    });
  return description?.raw.pendingActivities ?? [];
}

function placeOf({ activityType, state, heartbeatDetails }: Activity): keyof TrialWaits | null {
  const { PENDING_ACTIVITY_STATE_SCHEDULED: scheduled } = proto.temporal.api.enums.v1.PendingActivityState;
  switch (activityType?.name) {
    case 'openTrial': {
      // One that is tried again still has the heartbeats of its earlier try.
      if (state === scheduled) return 'host_slot';
      const [payload] = heartbeatDetails?.payloads ?? [];
      return payload ? (step.safeParse(defaultPayloadConverter.fromPayload(payload)).data ?? 'opening') : 'opening';
    }
    case 'runAgent':
      return 'agent';
    case 'verifyTrial':
      return 'verifier';
    case 'awaitPool':
      return 'engines';
    default:
      return null;
  }
}

const TEXTS: Record<keyof TrialWaits, string> = {
  host_slot: 'wait for a host with room (max_sandboxes, sandboxes_per_second)',
  opening: 'are being opened',
  engine_room: 'wait because calls of others wait long for the engines (max_concurrent_trials)',
  packages: 'wait for the packages of their agents',
  image: 'wait for their images',
  start_turn: 'wait for their turn among the starts',
  start: 'are being started',
  agent: 'run their agents',
  verifier: 'are being verified',
  engines: 'wait until the engines are whole again',
};

/** Returns the line of `status`. `shortage` is why this host is short of memory, and null where it is not. */
export function trialWaitsLine(
  waits: TrialWaits,
  callsInFlight: number | null,
  shortage: string | null,
): string | null {
  const parts = (Object.keys(TEXTS) as (keyof TrialWaits)[]).flatMap((place) => {
    if (waits[place] === 0) return [];
    const calls = place === 'agent' && callsInFlight !== null ? ` (${callsInFlight} calls are at the engines)` : '';
    const memory = place === 'host_slot' && shortage !== null ? `; this host is short of memory: ${shortage}` : '';
    return [`${waits[place]} ${TEXTS[place]}${calls}${memory}`];
  });
  return parts.length === 0 ? null : `trials: ${parts.join(', ')}`;
}
