import { and, desc, eq, isNull } from 'drizzle-orm';
import { isObject } from '../../core/json.ts';
import type { Database } from '../database.ts';
import { calls } from '../schema.ts';
import { readCall } from './read-call.ts';

/**
 * Returns the conversation of an attempt as messages in OpenAI's form: those of its last completed call and the model's reply. The prompt of a
 * text completion counts as a user's message. Empty when no call completed.
 */
export async function readTranscript(
  db: Database,
  { trialId, attempt }: { trialId: string; attempt: number },
): Promise<unknown[]> {
  const completed = and(
    eq(calls.trialId, trialId),
    eq(calls.attempt, attempt),
    eq(calls.status, 'completed'),
    isNull(calls.choiceOf),
  );
  const [last] = await db.select({ id: calls.id }).from(calls).where(completed).orderBy(desc(calls.seq)).limit(1);
  const call = last && (await readCall(db, { trialId, attempt, id: last.id }));
  if (!call) return [];
  const { messages, prompt } = call.request;
  const asked = Array.isArray(messages) ? messages : [{ role: 'user', content: prompt ?? '' }];
  return [...asked, ...replyOf(call.response)];
}

function replyOf(response: unknown): unknown[] {
  const choices = isObject(response) && Array.isArray(response.choices) ? response.choices : [];
  const [choice]: unknown[] = choices;
  if (!isObject(choice)) return [];
  return [isObject(choice.message) ? choice.message : { role: 'assistant', content: choice.text ?? '' }];
}
