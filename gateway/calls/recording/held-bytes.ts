import { choicesOf } from '../../../store/calls/choices.ts';
import { isObject, type JsonObject } from '../../json.ts';
import { sampledTokens, type CallResult } from '../../engines/call-result.ts';

/**
 * Sizes in V8's heap as measured: a token's id with its log-probability and text, its entry in a reply's log-probabilities, and one of the
 * entry's alternatives.
 */
const [TOKEN, ENTRY, ALTERNATIVE] = [16, 208, 128];
/** Sizes of an id in a sampling mask, and of the list of one token's ids. */
const [MASK_ID, MASK] = [8, 32];

/** Returns about how many bytes a call holds in memory until it is committed. `size` is that of its request's body. */
export function heldBytes(size: number, result: CallResult): number {
  const tokens = sampledTokens(result);
  return (
    size +
    TOKEN * ((result.prompt?.length ?? 0) + tokens) +
    maskBytes(result) +
    result.choices.reduce((sum, { experts }) => sum + (experts?.base64.length ?? 0), 0) +
    choicesOf(result.reply).reduce((sum, choice) => sum + entriesBytes(choice), 0)
  );
}

function maskBytes({ choices }: CallResult): number {
  return choices.reduce(
    (sum, { mask }) => (mask ?? []).reduce((bytes, ids) => bytes + MASK + MASK_ID * ids.length, sum),
    0,
  );
}

/**
 * Counts for each entry as many alternatives as the last one has, because an agent may ask for more than an engine gives, and an echoed
 * prompt begins without any.
 */
function entriesBytes({ logprobs }: JsonObject): number {
  if (!isObject(logprobs)) return 0;
  const { content, token_logprobs, top_logprobs } = logprobs;
  if (Array.isArray(content)) return content.length * (ENTRY + ALTERNATIVE * countOf(content.at(-1)?.top_logprobs));
  return Array.isArray(token_logprobs)
    ? token_logprobs.length * (ENTRY + ALTERNATIVE * countOf(Array.isArray(top_logprobs) ? top_logprobs.at(-1) : null))
    : 0;
}

const countOf = (alternatives: unknown): number =>
  (Array.isArray(alternatives) ? alternatives : isObject(alternatives) ? Object.keys(alternatives) : []).length;
