import { readStream } from '../harness/gateways.ts';

/** One call of an agent: its request and what the agent saw. */
export type Step = {
  /** The request's messages or prompt, and what else the reply depends on. */
  asked: Message;
  text: string;
  calls: ToolCall[];
  /** The step whose reply it continued, and how many of its messages that step covers. */
  after: { step: number; messages: number } | null;
};

/** The toy engine's next answer. */
export type Line = { text: string; ends: boolean };
type Options = {
  chat: (body: Message) => Promise<Response>;
  /** If absent, the agent makes no text completions. */
  complete?: (body: Message) => Promise<Response>;
  /** Sets the engine's next replies. */
  say?: (lines: Line[]) => void;
  steps?: number;
  tools?: boolean;
  /** Fields that make a model call a tool that seldom does so by itself. */
  forcing?: Message;
};
export type Message = Record<string, unknown>;
/** A conversation: a chat's messages, or a text's prompt. */
type Branch = { messages: Message[]; prompt: string | null; tools: unknown; after: Step['after'] };

const TEXTS = [
  '',
  ' ',
  '\n\n',
  'hello there',
  'naïve 🦀 crab',
  '<|im_end|>',
  'a <|im_start|>user\nno<|im_end|>\n',
  '\u0000',
  '```python\nprint(1)\n```',
  'é',
  '日本語',
  'trailing  ',
];
const CALLS = [
  '<tool_call>{ "name":"ls",  "arguments": {"path" : "."} }</tool_call>',
  'so: <tool_call>\n{"name": "cat", "arguments": {"file": "naïve 🦀"}}\n</tool_call>',
];
/** Some of these end within the text of a token. */
const STOPS = ['e', ' ', '\n', '🦀', 'th'];
const PARAMETERS = {
  type: 'object',
  properties: { path: { enum: ['.', 'naïve 🦀', ' a  b"'] } },
  required: ['path'],
  additionalProperties: false,
};
const TOOLS = [{ type: 'function', function: { name: 'ls', strict: true, parameters: PARAMETERS } }];

/**
 * Plays a random agent: several conversations in turn, some with tools, branches that share a beginning, edited histories, several replies a
 * request, stop strings, text completions; plain and streamed. The same seed gives the same conversations.
 */
export async function converse(
  seed: number,
  { chat, complete, say = () => {}, steps: count = 12, tools = true, forcing }: Options,
): Promise<Step[]> {
  const random = generator(seed);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  const branches: Branch[] = [];
  const steps: Step[] = [];
  for (let step = 0; step < count; step++) {
    if (branches.length === 0 || random() < 0.2) {
      const prompt = complete && random() < 0.3 ? `text ${step}: ${pick(TEXTS)}` : null;
      const hasTools = tools && prompt === null && random() < 0.5;
      branches.push({
        messages: [{ role: 'user', content: `${pick(TEXTS)} ${branches.length}` }],
        prompt,
        tools: hasTools ? TOOLS : undefined,
        after: null,
      });
    }
    if (random() < 0.15) branches.push(branchOff(pick(branches)));
    const branch = pick(branches);
    if (branch.after && random() < 0.1) edit(branch, step);
    const stream = random() < 0.5;
    const n = random() < 0.15 ? 3 : 1;
    say(
      Array.from({ length: n }, () => {
        const text = branch.tools && random() < 0.6 ? pick(CALLS) : pick(TEXTS);
        return { text, ends: text === '' || random() < 0.8 };
      }),
    );
    const several = { ...(n > 1 ? { n } : {}), ...(forcing && branch.tools && random() < 0.5 ? forcing : {}) };
    const stop = 'tool_choice' in several || random() < 0.85 ? undefined : pick(STOPS);
    const { messages, prompt, after } = branch;
    const asked = {
      ...(prompt === null ? { messages, tools: branch.tools } : { prompt }),
      ...several,
      ...(stop === undefined ? {} : { stop: random() < 0.5 ? stop : [stop] }),
      stream,
    };
    const reply = await (complete && prompt !== null ? complete : chat)(asked);
    if (reply.status !== 200) throw new Error(`the gateway answered ${reply.status}: ${await reply.text()}`);
    const replies = stream
      ? await repliesOf(reply, n)
      : ((await reply.json()) as { choices: Choice[] }).choices.map(({ message, text, stop_reason }): Message => ({
          ...(message ?? { content: text }),
          stop_reason,
        }));
    if (replies.length !== n) throw new Error(`${replies.length} replies, not ${n}`);
    const said = replies.map((message): Step => ({
      asked,
      text: String(message.content ?? ''),
      calls: (message.tool_calls as ToolCall[] | undefined) ?? [],
      after,
    }));
    const message = pick(replies);
    const chosen = replies.indexOf(message);
    branch.after = { step: steps.length + chosen, messages: messages.length + 1 };
    steps.push(...said);
    if (prompt !== null) {
      // The agent writes the stop string itself. The same prompt again, after an empty reply, is a new start.
      branch.prompt = `${prompt}${`${String(message.content)}${message.stop_reason ?? ''}` || '.'}${pick(TEXTS)}`;
      continue;
    }
    branch.messages = [...messages, echo(message, random)];
    const calls = said[chosen]?.calls ?? [];
    for (const { id } of calls) branch.messages.push({ role: 'tool', tool_call_id: id, content: pick(TEXTS) });
    if (calls.length === 0) branch.messages.push({ role: 'user', content: `${pick(TEXTS)} ${step}` });
  }
  return steps;
}

/** Returns an assistant's message as different SDKs send it back. */
function echo({ role, content, tool_calls }: Message, random: () => number): Message {
  const message: Message = {
    role,
    content: random() < 0.3 && typeof content === 'string' ? [{ type: 'text', text: content }] : content,
  };
  if (tool_calls) message.tool_calls = tool_calls;
  if (random() < 0.3) message.refusal = null;
  return message;
}

const branchOff = (branch: Branch): Branch => ({ ...branch, messages: [...branch.messages] });

/** Edits the history, so that the conversation is another one from here on. */
function edit(branch: Branch, step: number): void {
  if (branch.prompt !== null) branch.prompt = `edited at ${step} ${branch.prompt}`;
  branch.messages = [{ role: 'user', content: `edited at ${step}` }, ...branch.messages.slice(1)];
  branch.after = null;
}

type Choice = { index: number; message?: Message; text?: string; delta?: Message; stop_reason?: unknown };

async function repliesOf(reply: Response, n: number): Promise<Message[]> {
  const { chunks } = await readStream(reply);
  const messages = Array.from({ length: n }, (): Message => ({ role: 'assistant', content: '' }));
  for (const { index, text, stop_reason, delta = { content: text } } of chunks.flatMap(
    ({ choices = [] }) => choices as unknown as Choice[],
  )) {
    const message = messages[index];
    if (!message) throw new Error(`choice ${index} of ${n}`);
    if (typeof stop_reason === 'string') message.stop_reason = stop_reason;
    if (typeof delta.content === 'string') message.content = String(message.content) + delta.content;
    if (Array.isArray(delta.tool_calls))
      message.tool_calls = withParts(message.tool_calls as ToolCall[] | undefined, delta.tool_calls as ToolPart[]);
  }
  return messages;
}

export type ToolCall = { id?: string; type: string; function: { name: string; arguments: string } };
type ToolPart = { index: number; id?: string; function?: { name?: string; arguments?: string } };

/** Adds a stream's next parts to the tool calls. */
function withParts(before: readonly ToolCall[] = [], parts: readonly ToolPart[]): ToolCall[] {
  const calls = [...before];
  for (const { index, id, function: given } of parts) {
    const { id: known, function: said } = calls[index] ?? { function: { name: '', arguments: '' } };
    calls[index] = {
      id: known ?? id,
      type: 'function',
      function: { name: said.name + (given?.name ?? ''), arguments: said.arguments + (given?.arguments ?? '') },
    };
  }
  return calls;
}

/** Returns mulberry32: numbers from 0 to 1, the same for the same seed. */
export function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
