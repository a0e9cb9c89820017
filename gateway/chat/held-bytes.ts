import type { Call } from './call.ts';
import { sampledTokens, type Ending } from './ending.ts';

/** Measured in V8's heap: a token's id with its log-probability and text, its entry among a reply's log-probabilities, and one of that entry's alternatives. */
const [TOKEN, ENTRY, ALTERNATIVE] = [16, 208, 128];

/** A negative number of alternatives asks for all tokens that there are, and no number for more. */
const VOCABULARY = 2 ** 18;

type Held = { request: Pick<Call['request'], 'size' | 'wants'>; sampled: Call['sampled']; ending: Ending };

/** About how many bytes a call holds in memory until it is committed. */
export function heldBytes({ request, sampled, ending }: Held): number {
  const tokens = sampledTokens(ending);
  const entries = request.wants.logprobs ? tokens * (ENTRY + ALTERNATIVE * alternatives(sampled)) : 0;
  return request.size + TOKEN * ((ending.prompt?.length ?? 0) + tokens) + entries;
}

/** Of each token: a chat names their number beside `logprobs`, a text completion in it. */
function alternatives({ top_logprobs, logprobs }: Call['sampled']): number {
  const asked = typeof top_logprobs === 'number' ? top_logprobs : logprobs;
  if (typeof asked !== 'number') return 0;
  return asked < 0 ? VOCABULARY : Math.min(asked, VOCABULARY);
}
