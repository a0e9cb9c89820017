/** A tokenizer and chat template whose text does not tokenize back: the sampler may spell a pair of letters as two tokens. */
export const START = 0;
export const END = 1;
const SPECIAL = new Map([
  ['<|im_start|>', START],
  ['<|im_end|>', END],
]);
const BYTE = 10;
const PAIR = 300;
const [A, Z] = [97, 122];
const isLetter = (byte: number | undefined): byte is number => byte !== undefined && byte >= A && byte <= Z;

/** Returns the canonical ids: special tokens where their text stands, pairs of small letters from the left, else bytes. */
export function encode(text: string): number[] {
  return text.split(/(<\|im_start\|>|<\|im_end\|>)/).flatMap((part) => {
    const special = SPECIAL.get(part);
    return special === undefined ? encodeBytes(new TextEncoder().encode(part)) : [special];
  });
}

function encodeBytes(bytes: Uint8Array): number[] {
  const ids: number[] = [];
  for (let i = 0; i < bytes.length; i++) {
    const [first, second] = [bytes[i] ?? 0, bytes[i + 1]];
    if (isLetter(first) && isLetter(second)) {
      ids.push(PAIR + 26 * (first - A) + second - A);
      i++;
    } else ids.push(BYTE + first);
  }
  return ids;
}

/** Returns ids as a sampler may choose them, which differ from the tokenizer's wherever possible. */
export function misspell(text: string): number[] {
  return Array.from(new TextEncoder().encode(text), (byte) => BYTE + byte);
}

export function bytesOf(id: number): number[] {
  if (id < BYTE) return [];
  if (id < PAIR) return [id - BYTE];
  return [A + Math.floor((id - PAIR) / 26), A + ((id - PAIR) % 26)];
}

/** Returns the text of ids without special tokens, as vLLM does. */
export const decode = (ids: readonly number[]): string =>
  new TextDecoder().decode(Uint8Array.from(ids.flatMap(bytesOf)));

/** Returns the text of ids with special tokens. */
export function decodeWithSpecial(ids: readonly number[]): string {
  const names = new Map([...SPECIAL].map(([name, id]) => [id, name]));
  const bytes = ids.flatMap((id) => {
    const name = names.get(id);
    return name === undefined ? bytesOf(id) : [...new TextEncoder().encode(name)];
  });
  return new TextDecoder().decode(Uint8Array.from(bytes));
}

export type ToyMessage = {
  role: string;
  content?: unknown;
  reasoning?: unknown;
  reasoning_content?: unknown;
  tool_calls?: { function: { name: string; arguments: string } }[];
};

/**
 * Renders a conversation. Tool calls are written anew, as by real templates, and not as they were sampled. Thinking stays after the last
 * message of the user, and is dropped before it, as by Qwen3's template.
 */
export function template(body: { messages: ToyMessage[]; tools?: unknown; add_generation_prompt?: boolean }): string {
  const tools = body.tools ? `<|im_start|>system\ntools: ${JSON.stringify(body.tools)}<|im_end|>\n` : '';
  const lastOfUser = body.messages.findLastIndex(({ role }) => role === 'user');
  const turns = body.messages.map(({ role, content, tool_calls = [], reasoning, reasoning_content = reasoning }, i) => {
    const thinking = reasoning_content && i > lastOfUser ? `<think>${String(reasoning_content)}</think>` : '';
    const calls = tool_calls.map(
      (call) =>
        `\n<tool_call>${JSON.stringify({ name: call.function.name, arguments: JSON.parse(call.function.arguments) })}</tool_call>`,
    );
    return `<|im_start|>${role}\n${thinking}${textOf(content)}${calls.join('')}<|im_end|>\n`;
  });
  return tools + turns.join('') + (body.add_generation_prompt === false ? '' : '<|im_start|>assistant\n');
}

const textOf = (content: unknown): string =>
  typeof content === 'string'
    ? content
    : Array.isArray(content)
      ? content.map((part: { text?: string }) => part.text ?? '').join('\n')
      : '';
