/** JSON's own grammar of a string, a number, and a number that counts; of those, what fits 32 bits. */
export const STRING = String.raw`"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"`;
export const NUMBER = String.raw`-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?`;
export const COUNT = String.raw`(?:0|[1-9]\d*)`;
export const ID = String.raw`(?:0|[1-9]\d{0,8})`;

const BYTES = String.raw`(?:,"bytes":(?:null|\[(?:${COUNT}(?:,${COUNT})*)?\]))?`;
const ALTERNATIVE = String.raw`\{"token":${STRING},(?:"token_id":${COUNT},)?"logprob":${NUMBER}${BYTES}\}`;

/** How vLLM writes a token's log-probability in a chat completion and in what it generates from ids; `logprob` is its pattern. */
export const entry = (logprob: string): string =>
  String.raw`\{"token":${STRING},(?:"token_id":${COUNT},)?"logprob":${logprob}${BYTES}(?:,"top_logprobs":\[(?:${ALTERNATIVE}(?:,${ALTERNATIVE})*)?\])?\}`;

/** How it writes those of a text completion's chunk that has one token. */
export const textEntry = (logprob: string): string =>
  String.raw`\{"text_offset":\[${COUNT}\],"token_logprobs":\[${logprob}\],"tokens":\[${STRING}\],"top_logprobs":\[(?:\{(?:${STRING}:${NUMBER}(?:,${STRING}:${NUMBER})*)?\}|null)?\]\}`;
