import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { Database } from '../../../store/database.ts';
import { readCalls } from '../../../store/queries/read-calls.ts';
import { trials } from '../../../store/schema.ts';
import type { SampledReply } from '../fakes/engine-log.ts';
import type { DeliveredReply } from '../scenarios/retrying-agent.ts';
import { decode } from '../fakes/toy-tokenizer.ts';

export type Audit = {
  completed: number;
  /** How many later turns have a prompt that does not begin with the recorded ids. */
  notClean: number;
  /** Replies that an agent saw end and that are not recorded as it saw them. */
  lost: string[];
  /** Requests that are recorded as completed more than once, except after a replay that was also cut. Each reply has one. */
  twice: string[];
  /** Completed calls that no engine sent whole, or whose ids differ from the sampled ones. */
  unsampled: string[];
};

const replyOf = z.object({ choices: z.tuple([z.object({ message: z.object({ content: z.string() }) })]) });
const requestOf = z.object({ cue: z.object({ log: z.string() }) });

/** Compares the record with what agents saw end and what engines sent. */
export async function auditKills(
  db: Database,
  ended: readonly DeliveredReply[],
  sampled: readonly SampledReply[],
): Promise<Audit> {
  const rows = await completedCalls(db);
  const recorded = new Map(rows.map((row) => [row.id, row]));
  const seen = new Set(ended.map(({ callId }) => callId));
  const lost = ended.filter(({ callId, trialId, body, text }) => {
    const row = recorded.get(callId);
    return (
      row?.trialId !== trialId || row.digest !== createHash('sha256').update(body).digest('hex') || row.text !== text
    );
  });
  const sent = new Map(sampled.filter(({ finished }) => finished).map((reply) => [reply.text, reply]));
  const unsampled = rows.filter(
    ({ text, request, ids }) => sent.get(text)?.request !== request || decode(ids) !== text,
  );
  const requests = Map.groupBy(rows, ({ trialId, digest, idempotencyKey }) => `${trialId} ${digest} ${idempotencyKey}`);
  return {
    completed: rows.length,
    notClean: rows.filter(({ continuation }) => continuation === 'drifted' || continuation === 'branched').length,
    lost: lost.map(({ callId, trialId, text }) => `call ${callId} of ${trialId}: ${text}`),
    twice: [...requests]
      .filter(([, same]) => same.filter(({ id, replayed }) => !replayed || seen.has(id)).length > 1)
      .map(([request]) => request),
    unsampled: unsampled.map(({ id, trialId }) => `call ${id} of ${trialId}`),
  };
}

async function completedCalls(db: Database) {
  const rows = [];
  for (const { trialId, attempt } of await db.select({ trialId: trials.id, attempt: trials.attempt }).from(trials)) {
    for (const { status, request, response, digest, completionTokenIds, ...call } of await readCalls(db, {
      trialId,
      attempt,
    })) {
      if (status !== 'completed') continue;
      const { choices } = replyOf.parse(response);
      const said = {
        text: choices[0].message.content,
        request: requestOf.parse(request).cue.log,
        ids: Array.from(completionTokenIds ?? []),
      };
      rows.push({ ...call, ...said, digest: Buffer.from(digest ?? []).toString('hex') });
    }
  }
  return rows;
}
