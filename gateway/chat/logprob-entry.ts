/** JSON's own grammar of a string and a number. */
export const STRING = String.raw`"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"`;
export const NUMBER = String.raw`-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?`;

const BYTES = String.raw`(?:,"bytes":(?:null|\[[\d,]*\]))?`;
const alternative = String.raw`\{"token":${STRING},(?:"token_id":\d+,)?"logprob":${NUMBER}${BYTES}(?:,"token_id":\d+)?\}`;

/** How vLLM writes a token's log-probability in a chat completion and in what it generates from ids; `logprob` is its pattern. */
export const entry = (logprob: string): string =>
  String.raw`\{"token":${STRING},(?:"token_id":\d+,)?"logprob":${logprob}${BYTES}(?:,"token_id":\d+)?(?:,"top_logprobs":\[(?:${alternative},?)*\])?(?:,"token_id":\d+)?\}`;
