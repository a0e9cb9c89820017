import { defaultPayloadConverter } from '@temporalio/common';
import type { Client } from '@temporalio/client';
import proto from '@temporalio/proto';
import { z } from 'zod';
import type { RunStatusReport } from '../../workflows/messages.ts';

/** The details of the GPU worker's heartbeats (`gpu-workers/trialgate_gpu/progress.py` writes them). */
const heartbeat = z.object({
  phase: z.string(),
  epoch: z.number().optional(),
  update: z.number().optional(),
  updates: z.number().optional(),
  pack: z.number().optional(),
  packs: z.number().optional(),
  tokens: z.number().optional(),
  replica: z.string().optional(),
});
type Heartbeat = z.output<typeof heartbeat>;

/** Returns the workflows whose activities the run may wait for in this phase. The run itself lets the trainer load the model before its first publication. */
function workflowsOf({ run, phase, iteration, take }: RunStatusReport): string[] {
  if (phase === 'train') return [`${run}/${iteration}.${take}`];
  return phase === 'publish' ? [`${run}/publish`, run] : [];
}

/** Reads what the trainer or the publisher is doing inside the step under way. Returns null when there is no step, or nobody answers. */
export async function readStepProgress(client: Client, report: RunStatusReport | null): Promise<string | null> {
  for (const workflowId of report ? workflowsOf(report) : []) {
    const said = await readHeartbeat(client, workflowId);
    // It says so before each activity's first phase, and the run has better words.
    if (said !== null && said.phase !== 'starting') return stepText(said);
  }
  return null;
}

/** Returns what an activity of the workflow said last; null when none is under way, or it has said nothing. */
async function readHeartbeat(client: Client, workflowId: string): Promise<Heartbeat | null> {
  const { PENDING_ACTIVITY_STATE_STARTED: started } = proto.temporal.api.enums.v1.PendingActivityState;
  const description = await client.workflow
    .getHandle(workflowId)
    .describe()
    .catch(() => null);
  for (const { state, heartbeatDetails } of description?.raw.pendingActivities ?? []) {
    // An activity that waits for a worker still has the heartbeats of its earlier attempt.
    if (state !== started) continue;
    for (const payload of heartbeatDetails?.payloads ?? []) {
      const said = heartbeat.safeParse(defaultPayloadConverter.fromPayload(payload));
      if (said.success) return said.data;
    }
  }
  return null;
}

/** Returns a heartbeat as text: "train, pack 3 of 12, 41,022 tokens". */
export function stepText({ phase, epoch, update, updates = 1, pack, packs, tokens, replica }: Heartbeat): string {
  return [
    phase,
    ...(epoch ? [`epoch ${epoch + 1}`] : []),
    ...(update !== undefined && updates > 1 ? [`update ${update} of ${updates}`] : []),
    ...(pack !== undefined && packs !== undefined ? [`pack ${pack} of ${packs}`] : []),
    ...(!tokens ? [] : [`${tokens.toLocaleString('en')} tokens`]),
    ...(replica === undefined ? [] : [replica]),
  ].join(', ');
}
