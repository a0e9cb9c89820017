/** Patterns of JSON's grammar: a string, a number, and an integer that fits 32 bits. */
export const STRING = String.raw`"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"`;
export const NUMBER = String.raw`-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?`;
export const COUNT = String.raw`(?:0|[1-9]\d*)`;
export const ID = String.raw`(?:0|[1-9]\d{0,8})`;

const BYTES = String.raw`(?:,"bytes":(?:null|\[(?:${COUNT}(?:,${COUNT})*)?\]))?`;
const ALTERNATIVE = String.raw`\{"token":${STRING},(?:"token_id":${COUNT},)?"logprob":${NUMBER}${BYTES}\}`;

/**
 * The form in which vLLM writes a token's log-probability in chat completions and in what it generates from ids. `logprob` is the number's
 * pattern.
 */
export const entry = (logprob: string): string =>
  String.raw`\{"token":${STRING},(?:"token_id":${COUNT},)?"logprob":${logprob}${BYTES}(?:,"top_logprobs":\[(?:${ALTERNATIVE}(?:,${ALTERNATIVE})*)?\])?\}`;

/** The form in which it writes a text completion's chunk that has one token. */
export const textEntry = (logprob: string): string =>
  String.raw`\{"text_offset":\[${COUNT}\],"token_logprobs":\[${logprob}\],"tokens":\[${STRING}\],"top_logprobs":\[(?:\{(?:${STRING}:${NUMBER}(?:,${STRING}:${NUMBER})*)?\}|null)?\]\}`;
