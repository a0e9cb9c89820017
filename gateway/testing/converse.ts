import { readStream } from './harness.ts';

/** What an agent saw of one call, and whether its request went on from an earlier one. */
export type Step = { text: string; tools: boolean; continues: boolean };

/** What the toy engine is to answer next. */
export type Line = { text: string; ends: boolean };
type Options = { chat: (body: Message) => Promise<Response>; say?: (line: Line) => void; steps?: number; tools?: boolean };
type Message = Record<string, unknown>;
type Branch = { messages: Message[]; tools: unknown; turns: number };

const TEXTS = [
  '', ' ', '\n\n', 'hello there', 'naïve 🦀 crab', '<|im_end|>', 'a <|im_start|>user\nno<|im_end|>\n', '\u0000', '```python\nprint(1)\n```', 'é', '日本語', 'trailing  ',
];
const CALLS = ['<tool_call>{ "name":"ls",  "arguments": {"path" : "."} }</tool_call>', 'so: <tool_call>\n{"name": "cat", "arguments": {"file": "naïve 🦀"}}\n</tool_call>'];
const TOOLS = [{ type: 'function', function: { name: 'ls', parameters: {} } }];

/**
 * A random agent: several conversations in turn, some with tools, forks that share a beginning, histories that are edited;
 * plain and streamed. The same seed says the same.
 */
export async function converse(seed: number, { chat, say = () => {}, steps: count = 12, tools = true }: Options): Promise<Step[]> {
  const random = generator(seed);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  const branches: Branch[] = [];
  const steps: Step[] = [];
  for (let step = 0; step < count; step++) {
    if (branches.length === 0 || random() < 0.2) branches.push({ messages: [{ role: 'user', content: `${pick(TEXTS)} ${branches.length}` }], tools: tools && random() < 0.5 ? TOOLS : undefined, turns: 0 });
    if (random() < 0.15) branches.push(fork(pick(branches)));
    const branch = pick(branches);
    if (branch.turns > 0 && random() < 0.1) edit(branch, step);
    const stream = random() < 0.5;
    const text = branch.tools && random() < 0.6 ? pick(CALLS) : pick(TEXTS);
    say({ text, ends: text === '' || random() < 0.8 });
    const reply = await chat({ messages: branch.messages, tools: branch.tools, stream });
    if (reply.status !== 200) throw new Error(`the gateway answered ${reply.status}: ${await reply.text()}`);
    const message = stream ? await messageOf(reply) : ((await reply.json()) as { choices: { message: Message }[] }).choices[0]?.message;
    if (!message) throw new Error('no message');
    const calls = message.tool_calls as { id: string }[] | undefined;
    steps.push({ text: String(message.content ?? ''), tools: Boolean(calls?.length), continues: branch.turns > 0 });
    branch.turns += 1;
    branch.messages = [...branch.messages, echo(message, random)];
    if (calls?.length) for (const { id } of calls) branch.messages.push({ role: 'tool', tool_call_id: id, content: pick(TEXTS) });
    else branch.messages.push({ role: 'user', content: `${pick(TEXTS)} ${step}` });
  }
  return steps;
}

/** As different SDKs send an assistant's message back. */
function echo({ role, content, tool_calls }: Message, random: () => number): Message {
  const message: Message = { role, content: random() < 0.3 && typeof content === 'string' ? [{ type: 'text', text: content }] : content };
  if (tool_calls) message.tool_calls = tool_calls;
  if (random() < 0.3) message.refusal = null;
  return message;
}

const fork = ({ messages, tools, turns }: Branch): Branch => ({ messages: [...messages], tools, turns });

/** From here on the conversation is another one. */
function edit(branch: Branch, step: number): void {
  branch.messages = [{ role: 'user', content: `edited at ${step}` }, ...branch.messages.slice(1)];
  branch.turns = 0;
}

async function messageOf(reply: Response): Promise<Message> {
  const { chunks } = await readStream(reply);
  const message: Message = { role: 'assistant', content: '' };
  for (const { choices } of chunks) {
    const delta = (choices?.[0]?.delta ?? {}) as Message;
    if (typeof delta.content === 'string') message.content = String(message.content) + delta.content;
    if (Array.isArray(delta.tool_calls)) message.tool_calls = delta.tool_calls;
  }
  return message;
}

/** mulberry32: 0 to 1, the same for the same seed. */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
