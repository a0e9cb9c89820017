import { choicesOf } from '../../store/calls/choices.ts';
import { isObject, type JsonObject } from '../json.ts';
import { sampledTokens, type Ending } from './ending.ts';

/** Measured in V8's heap: a token's id with its log-probability and text, its entry among a reply's log-probabilities, and one of that entry's alternatives. */
const [TOKEN, ENTRY, ALTERNATIVE] = [16, 208, 128];

/** About how many bytes a call holds in memory until it is committed; `size`: of its request's body. */
export function heldBytes(size: number, ending: Ending): number {
  const tokens = sampledTokens(ending);
  return size + TOKEN * ((ending.prompt?.length ?? 0) + tokens) + tokens * entryBytes(ending.reply);
}

/** Of each token, by the first one's: what was asked for is what an agent says, and an engine may give less. */
function entryBytes(reply: JsonObject | null): number {
  const { logprobs } = choicesOf(reply)[0] ?? {};
  if (!isObject(logprobs)) return 0;
  const [entry] = Array.isArray(logprobs.content) ? logprobs.content : [];
  const tops: unknown = isObject(entry) ? entry.top_logprobs : Array.isArray(logprobs.top_logprobs) ? logprobs.top_logprobs[0] : null;
  return ENTRY + ALTERNATIVE * (Array.isArray(tops) ? tops : Object.keys(isObject(tops) ? tops : {})).length;
}
