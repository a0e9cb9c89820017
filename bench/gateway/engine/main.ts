/**
 * Runs an engine that costs almost nothing: vLLM's routes and bytes over plain sockets, without a model, in its own process.
 * `POST /bench/mode {tokens, paceMs}` sets how it answers (pace 0 sends a stream in one write); `GET /bench/counts` returns its counts.
 */
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { conversationIds, QUESTION } from './conversation.ts';
import { ENGINE_WEIGHT_VERSION } from './weight-version.ts';
import {
  json,
  streamedChat,
  streamedGenerated,
  streamedText,
  wholeChat,
  wholeGenerated,
  wholeText,
  type StreamParts,
} from './replies.ts';
import { Requests, type EngineRequest } from './requests.ts';
import { CHAT, Schedule, TEXT } from './schedule.ts';

export type EngineMode = { tokens: number; paceMs: number };
/** `served` counts replies whose last byte was written, `aborted` streams whose client left before that. */
export type EngineCounts = {
  served: number;
  streams: number;
  rendered: number;
  generated: number;
  aborted: number;
  tokens: number;
};

let mode: EngineMode = { tokens: 64, paceMs: 0 };
const counts = { served: 0, rendered: 0, generated: 0, burst: 0, begun: 0 };
const schedule = new Schedule();
const made = new Map<string, Buffer>();
const parts = new Map<string, StreamParts>();

const MODELS = json({
  object: 'list',
  data: [
    {
      id: 'policy',
      object: 'model',
      created: 1795286884,
      owned_by: 'vllm',
      root: 'policy',
      parent: null,
      max_model_len: 1_000_000,
    },
  ],
});
const WEIGHT_INFO_REPLY = json({ weight_version: ENGINE_WEIGHT_VERSION });
const TOKENIZED = json({ count: QUESTION.length, max_model_len: 1_000_000, tokens: QUESTION, token_strs: null });
const EMPTY = json({});
const REFUSED = json(
  { error: { message: 'the benchmark asked for a refusal', type: 'BadRequestError', param: null, code: 400 } },
  '400 Bad Request',
);
/** A larger body is searched only at its beginning, which decides how it is answered, because a full search would delay all other replies. */
const LARGE = 2 * 2 ** 20;
const BEGINNING = 1024;
const NO_MASK = json({ choices: [{ index: 0, token_ids: [1] }] });
const NOT_FOUND = json({ detail: 'Not Found' }, '404 Not Found');
const SAMPLING = {
  temperature: 1,
  top_p: 1,
  min_p: 0,
  repetition_penalty: 1,
  max_tokens: 64,
  logprobs: 0,
  output_kind: 2,
  skip_clone: true,
};
const RENDERED = {
  content_parts: null,
  sampling_params: SAMPLING,
  model: 'policy',
  reasoning_ended: null,
  return_token_ids: null,
  output_mode: 'tokens',
  stream: false,
  stream_options: null,
  cache_salt: null,
  priority: 0,
};

function answer(socket: Socket, { path, body: whole }: EngineRequest): void {
  const { tokens } = mode;
  const body = whole.length > LARGE ? whole.subarray(0, BEGINNING) : whole;
  if (whole.length > LARGE && body.includes('"bench_refuse":')) return void socket.write(REFUSED);
  if (path === '/v1/chat/completions') {
    const messages = countOf(body, '"role":');
    if (isStream(body)) return stream(socket, `chat ${tokens} ${messages}`, () => streamedChat(tokens, messages));
    counts.served += 1;
    return void socket.write(kept(`chat ${tokens} ${messages}`, () => wholeChat(tokens, messages)));
  }
  if (path === '/inference/v1/generate') {
    // The gateway sends this request to learn whether this engine returns sampling masks.
    if (body.includes('"top_k":1}')) return void socket.write(NO_MASK);
    counts.generated += 1;
    if (isStream(body)) return stream(socket, `ids ${tokens}`, () => streamedGenerated(tokens));
    counts.served += 1;
    return void socket.write(kept(`ids ${tokens}`, () => wholeGenerated(tokens)));
  }
  if (path === '/v1/completions') {
    const ids = promptIn(body);
    const key = `text ${tokens} ${ids.length}`;
    const prompt = (): number[] =>
      ids.length === 0 ? conversationIds(1) : (JSON.parse(`[${ids.toString('latin1')}]`) as number[]);
    if (isStream(body)) return stream(socket, key, () => streamedText(tokens, prompt()));
    counts.served += 1;
    return void socket.write(kept(key, () => wholeText(tokens, prompt())));
  }
  if (path === '/v1/chat/completions/render') return render(socket, body);
  socket.write(simple(path, body));
}

function simple(path: string, body: Buffer): Buffer {
  if (path === '/weight_info') return WEIGHT_INFO_REPLY;
  if (path === '/v1/models') return MODELS;
  if (path === '/tokenize') return TOKENIZED;
  // The gateway sends this request to learn whether this engine parses tool calls. 200 means that it does not.
  if (path === '/v1/chat/completions/derender' || path === '/health') return EMPTY;
  if (path === '/bench/mode') {
    mode = JSON.parse(body.toString()) as EngineMode;
    schedule.paceMs = mode.paceMs;
    return EMPTY;
  }
  if (path !== '/bench/counts') return NOT_FOUND;
  const { served, rendered, generated, burst, begun } = counts;
  const { aborted, tokens, ended } = schedule;
  return json({
    served: served + burst + ended,
    streams: burst + begun,
    rendered,
    generated,
    aborted,
    tokens,
  } satisfies EngineCounts);
}

function stream(socket: Socket, key: string, make: () => StreamParts): void {
  if (mode.paceMs > 0) {
    counts.begun += 1;
    return schedule.add(socket, key.startsWith('text') ? TEXT : CHAT, keptParts(key, make), mode.tokens);
  }
  counts.burst += 1;
  socket.write(
    kept(`stream ${key}`, () => {
      const { opening, tokens, ending } = keptParts(key, make);
      return Buffer.from(opening + tokens.join('') + ending, 'latin1');
    }),
  );
}

function render(socket: Socket, body: Buffer): void {
  counts.rendered += 1;
  const open = !body.includes('"add_generation_prompt":false');
  const messages = countOf(body, '"role":');
  // The gateway's own request for what the template writes after a reply has an empty reply.
  const replyTokens = body.includes('"content":""') ? 0 : 64;
  const key = `render ${messages} ${open} ${replyTokens}`;
  socket.write(
    kept(key, () =>
      json({
        request_id: 'chatcmpl-93abe68dae7d085e',
        token_ids: conversationIds(messages, { open, replyTokens }),
        token_offsets: null,
        features: null,
        ...RENDERED,
      }),
    ),
  );
}

function kept(key: string, make: () => Buffer): Buffer {
  const known = made.get(key) ?? make();
  made.set(key, known);
  return known;
}

function keptParts(key: string, make: () => StreamParts): StreamParts {
  const known = parts.get(key) ?? make();
  parts.set(key, known);
  return known;
}

const isStream = (body: Buffer): boolean => body.includes('"stream":true') || body.includes('"stream": true');

const PROMPT_IDS = '"prompt":[';

/** Returns the bytes of the prompt ids of a text completion, or none if its prompt is text. Prompts of equal length are equal. */
function promptIn(body: Buffer): Buffer {
  const at = body.indexOf(PROMPT_IDS);
  return at < 0 ? Buffer.alloc(0) : body.subarray(at + PROMPT_IDS.length, body.indexOf(']', at));
}

function countOf(body: Buffer, text: string): number {
  let count = 0;
  for (let at = body.indexOf(text); at >= 0; at = body.indexOf(text, at + text.length)) count += 1;
  return count;
}

const server = createServer({ noDelay: true }, (socket) => {
  const requests = new Requests();
  socket.on('error', () => {});
  socket.on('data', (data) => {
    for (const request of requests.take(data)) answer(socket, request);
  });
});
server.listen({ port: 0, host: '127.0.0.1', backlog: 4096 }, () => {
  const { port } = server.address() as AddressInfo;
  console.log(`engine listening on http://127.0.0.1:${port}`);
});
// The process that started this engine has ended.
process.on('disconnect', () => process.exit());
