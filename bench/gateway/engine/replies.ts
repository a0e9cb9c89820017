/** Prepares the bytes of vLLM 0.32's replies, so that a reply costs one write. */
import { conversationIds } from './conversation.ts';
import { ENGINE_WEIGHT_VERSION } from './weight-version.ts';

type Token = { text: string; id: number; logprob: number };

const TOKENS: Token[] = [
  { text: 'In', id: 788, logprob: -2.3267648220062256 },
  { text: ' the', id: 260, logprob: -0.787908136844635 },
  { text: ' heart', id: 1911, logprob: -0.8187440037727356 },
  { text: ' of', id: 282, logprob: -0.0008300673216581345 },
  { text: ' this', id: 451, logprob: -1.5904512405395508 },
  { text: ' planet', id: 3925, logprob: -3.1842832565307617 },
  { text: ',', id: 28, logprob: -0.24720942974090576 },
  { text: ' our', id: 653, logprob: -6.499002456665039 },
  { text: ' great', id: 1109, logprob: -4.023013114929199 },
  { text: ' trees', id: 3417, logprob: -0.9193176627159119 },
  { text: ' stand', id: 1481, logprob: -2.6833338737487793 },
  { text: ' tall', id: 6780, logprob: -1.01637864112854 },
  { text: ' and', id: 284, logprob: -0.20471942424774 },
  { text: ' proud', id: 9723, logprob: -0.5166233777999878 },
  { text: ' woven', id: 17942, logprob: -6.018242359161377 },
  { text: ' into', id: 618, logprob: -0.39430660009384155 },
];
const tokenAt = (i: number): Token => TOKENS[i % TOKENS.length] as Token;
const tokensTo = (count: number): Token[] => Array.from({ length: count }, (_, i) => tokenAt(i));

/** Returns the text of a reply with this number of tokens, which an agent sends back in its next turn. */
export const textOf = (tokens: number): string =>
  tokensTo(tokens)
    .map(({ text }) => text)
    .join('');

const CREATED = 1795286870;
const chatHead = (object: string) => ({ id: 'chatcmpl-b559c4e431e86a05', object, created: CREATED, model: 'policy' });
const bytesOf = (text: string): number[] => [...Buffer.from(text)];
const entry = ({ text, logprob }: Token) => ({ token: text, logprob, bytes: bytesOf(text), top_logprobs: [] });
const usageOf = (prompt: number, tokens: number) => ({
  prompt_tokens: prompt,
  total_tokens: prompt + tokens,
  completion_tokens: tokens,
});
const NO_DETAILS = { prompt_tokens_details: null, completion_tokens_details: null };
const FINGERPRINT = 'vllm-0.32.0-9d7d557a';

export function wholeChat(tokens: number, messages: number): Buffer {
  const prompt = conversationIds(messages);
  const tokensSampled = tokensTo(tokens);
  const message = {
    role: 'assistant',
    content: textOf(tokens),
    refusal: null,
    annotations: null,
    audio: null,
    function_call: null,
    reasoning: null,
  };
  const ending = {
    finish_reason: 'length',
    stop_reason: null,
    token_ids: tokensSampled.map(({ id }) => id),
    routed_experts: null,
  };
  return json({
    ...chatHead('chat.completion'),
    choices: [{ index: 0, message, logprobs: { content: tokensSampled.map(entry) }, ...ending }],
    service_tier: null,
    system_fingerprint: FINGERPRINT,
    usage: { ...usageOf(prompt.length, tokens), ...NO_DETAILS },
    ...{
      prompt_logprobs: null,
      prompt_token_ids: prompt,
      prompt_text: null,
      kv_transfer_params: null,
      ec_transfer_params: null,
      metrics: null,
    },
  });
}

/** The parts of a stream: the bytes before the first token, those of each token, and those after the last one. */
export type StreamParts = { opening: string; tokens: string[]; ending: string };

export function streamedChat(tokens: number, messages: number): StreamParts {
  const prompt = conversationIds(messages);
  const head = chatHead('chat.completion.chunk');
  const role = { index: 0, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null };
  const usage = { ...head, choices: [], usage: usageOf(prompt.length, tokens), system_fingerprint: FINGERPRINT };
  return {
    opening: STREAM_HEAD + event({ ...head, choices: [role], prompt_token_ids: prompt, prompt_text: null }),
    tokens: tokensTo(tokens).map((token, i) => chatChunk(token, i === tokens - 1)),
    ending: event(usage) + END,
  };
}

export function chatChunk(token: Token, isLast: boolean): string {
  const finish = isLast ? { finish_reason: 'length', stop_reason: null } : { finish_reason: null };
  const choice = {
    index: 0,
    delta: { content: token.text },
    logprobs: { content: [entry(token)] },
    ...finish,
    token_ids: [token.id],
  };
  return event({ ...chatHead('chat.completion.chunk'), choices: [choice] });
}

/** Returns the offset of each token's text. */
function offsetsOf(tokensSampled: Token[], from: number): number[] {
  let next = from;
  return tokensSampled.map(({ text }) => {
    const at = next;
    next += text.length;
    return at;
  });
}

const textHead = { id: 'cmpl-b559c4e431e86a05', object: 'text_completion', created: CREATED, model: 'policy' };
const textLogprobs = (tokensSampled: Token[], from: number) => ({
  text_offset: offsetsOf(tokensSampled, from),
  token_logprobs: tokensSampled.map(({ logprob }) => logprob),
  tokens: tokensSampled.map(({ text }) => text),
  top_logprobs: tokensSampled.map(({ text, logprob }) => ({ [text]: logprob })),
});

export function wholeText(tokens: number, prompt: number[]): Buffer {
  const tokensSampled = tokensTo(tokens);
  const ids = { token_ids: tokensSampled.map(({ id }) => id), prompt_token_ids: prompt, prompt_logprobs: null };
  const choice = {
    index: 0,
    text: textOf(tokens),
    logprobs: textLogprobs(tokensSampled, 0),
    finish_reason: 'length',
    stop_reason: null,
    ...ids,
  };
  return json({
    ...textHead,
    choices: [choice],
    service_tier: null,
    system_fingerprint: FINGERPRINT,
    usage: { ...usageOf(prompt.length, tokens), ...NO_DETAILS },
    kv_transfer_params: null,
  });
}

export function streamedText(tokens: number, prompt: number[]): StreamParts {
  const tokensSampled = tokensTo(tokens);
  const offsets = offsetsOf(tokensSampled, 0);
  return {
    opening: STREAM_HEAD,
    tokens: tokensSampled.map((token, i) =>
      textChunk(token, { prompt: i === 0 ? prompt : null, offset: offsets[i] ?? 0, isLast: i === tokens - 1 }),
    ),
    ending: event({ ...textHead, choices: [], usage: usageOf(prompt.length, tokens) }) + END,
  };
}

export function textChunk(
  token: Token,
  { prompt = null, offset = 0, isLast = false }: { prompt?: number[] | null; offset?: number; isLast?: boolean },
): string {
  const ids = { token_ids: [token.id], prompt_token_ids: prompt };
  return event({
    ...textHead,
    choices: [
      {
        index: 0,
        text: token.text,
        logprobs: textLogprobs([token], offset),
        finish_reason: isLast ? 'length' : null,
        stop_reason: null,
        ...ids,
      },
    ],
  });
}

/** Returns a whole reply of `/inference/v1/generate`, with text. Its log-probabilities have the sampled token a second time. */
export function wholeGenerated(tokens: number): Buffer {
  const tokensSampled = tokensTo(tokens);
  const choice = {
    ...generatedChoice(tokensSampled, tokens),
    text: textOf(tokens),
    logprobs: { content: tokensSampled.map(generatedEntry) },
  };
  const nothing = {
    prompt_logprobs: null,
    prompt_token_id_logprobs: null,
    prompt_token_ids: null,
    mm_placeholders: null,
    metrics: null,
    kv_transfer_params: null,
    ec_transfer_params: null,
  };
  return json({
    request_id: REQUEST,
    model: 'policy',
    created: CREATED,
    usage: { ...usageOf(100, tokens), ...NO_DETAILS },
    ...nothing,
    output_mode: 'text',
    choices: [choice],
  });
}

export function streamedGenerated(tokens: number): StreamParts {
  const head = { request_id: REQUEST, usage: null, output_mode: 'text' };
  return {
    opening: STREAM_HEAD,
    tokens: tokensTo(tokens).map((token, i) => {
      const choice = {
        ...generatedChoice([token], i === tokens - 1 ? tokens : null),
        text: token.text,
        logprobs: { content: [generatedEntry(token)] },
      };
      return event({ ...head, choices: [choice] });
    }),
    ending: event({ ...head, usage: usageOf(100, tokens), choices: [] }) + END,
  };
}

const REQUEST = 'generate-tokens-chatcmpl-93abe68dae7d085e';
const generatedEntry = (token: Token) => ({
  ...entry(token),
  top_logprobs: [{ token: token.text, logprob: token.logprob, bytes: bytesOf(token.text) }],
});

/** `ended` is the total number of tokens when the last one is included, otherwise null. */
function generatedChoice(tokensSampled: Token[], ended: number | null) {
  const versions = ended === null ? null : [{ version: ENGINE_WEIGHT_VERSION, start: 0, end: ended }];
  const finish = { finish_reason: ended === null ? null : 'length', stop_reason: null };
  return {
    index: 0,
    ...finish,
    token_ids: tokensSampled.map(({ id }) => id),
    routed_experts: null,
    sampling_mask: null,
    weight_versions: versions,
  };
}

const SERVER = 'date: Sat, 21 Nov 2026 18:47:49 GMT\r\nserver: uvicorn\r\n';
const STREAM_HEAD = `HTTP/1.1 200 OK\r\n${SERVER}content-type: text/event-stream; charset=utf-8\r\nvary: Origin\r\ntransfer-encoding: chunked\r\n\r\n`;

export function json(body: unknown, status = '200 OK'): Buffer {
  const text = JSON.stringify(body);
  const head = `HTTP/1.1 ${status}\r\n${SERVER}content-length: ${Buffer.byteLength(text)}\r\ncontent-type: application/json\r\nvary: Origin\r\n\r\n`;
  return Buffer.from(head + text);
}

const httpChunk = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
const event = (body: unknown): string => httpChunk(`data: ${JSON.stringify(body)}\n\n`);
const END = `${httpChunk('data: [DONE]\n\n')}0\r\n\r\n`;

/** Returns a function that makes a token's event with a stamp of this number of digits as its text. */
export function stampedToken(digits: number, write: (token: Token) => string): (stamp: string) => string {
  const token = { ...tokenAt(0), text: '0'.repeat(digits) };
  const codes = bytesOf(token.text).join(',');
  const parts = write(token).split(token.text);
  // The code of every digit has two digits, so the length stays the same.
  return (stamp) => parts.join(stamp).replace(codes, bytesOf(stamp).join(','));
}
