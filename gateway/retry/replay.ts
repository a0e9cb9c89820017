import { choicesOf } from '../../store/calls/choices.ts';
import type { Replay } from '../../store/queries/claim-reply.ts';
import type { ModelRequest } from '../chat/request.ts';
import { wholeReply } from '../chat/whole-reply.ts';
import type { JsonObject } from '../json.ts';

/** Answers with the reply of a completed call. Makes and records no new call. */
export const replay = (done: Replay, request: ModelRequest): Response =>
  wholeReply(done.id, request.wants.tokenIds ? withIds(done, request) : done.reply, request, {
    'x-trialgate-replay': 'true',
  });

/** Adds the ids to a stored reply, because they have columns of their own. A text completion names the prompt's ids in each choice. */
function withIds({ reply, prompt, completions }: Replay, { route }: ModelRequest): JsonObject {
  const prompted = { prompt_token_ids: prompt && Array.from(prompt) };
  const isText = route === '/v1/completions';
  const choices = choicesOf(reply).map((choice, i) => ({
    ...choice,
    ...(isText ? prompted : {}),
    token_ids: Array.from(completions[i] ?? []),
  }));
  return { ...reply, choices, ...(isText ? {} : prompted) };
}
