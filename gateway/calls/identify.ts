import { outlineOf, type Outline } from '../../store/calls/outline.ts';
import type { TrialNow } from '../../store/queries/find-trials.ts';
import type { ConversationState } from '../conversations/conversations.ts';
import { conversationOf, type Conversation } from '../conversations/messages.ts';
import type { CallDeps } from './deps.ts';
import type { ReceivedRequest } from './received.ts';
import { reportLeftOut } from './report-left-out.ts';

/** The request with what names its contents (`outline`) and its history (`conversation`). */
export type IdentifiedRequest = ReceivedRequest & { outline: Outline; conversation: Conversation | null };

export function identify(request: ReceivedRequest): IdentifiedRequest {
  const { body, kept, leftOut = [] } = request;
  const outline = outlineOf({ ...body, ...kept, ...(leftOut.length > 0 ? { left_out: leftOut } : {}) });
  return { ...request, outline, conversation: conversationOf(body, kept ? {} : outline.lists) };
}

/** The request with the recorded call that it continues. */
export type CallRequest = IdentifiedRequest & { state: ConversationState };

/** Finds where the request goes on from. Reports the parts of it that the model is not shown, unless an earlier call had them too. */
export async function locate(deps: CallDeps, now: TrialNow, request: IdentifiedRequest): Promise<CallRequest> {
  const { conversation, outline, leftOut = [] } = request;
  const state = await deps.conversations.find({ ...now, trialId: now.id }, conversation);
  reportLeftOut(
    deps,
    now,
    leftOut.filter((_, i) => !state.known.has(outline.lists.left_out?.[i]?.digest ?? '')),
  );
  return { ...request, state };
}
