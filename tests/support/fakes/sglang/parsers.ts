import { isObject, parseObject } from '../../../../gateway/json.ts';

export type ParsedCall = { tool_index: number; name: string; parameters: string };

const OPEN = '<tool_call>';

/**
 * Takes tool calls out of a text as the parser `hermes` does. Calls of tools that were not given are left out, and so is the rest of a text
 * in which a call begins. If a call is not JSON, the text stays as it is.
 */
export function parseToolCalls(text: string, tools: unknown): { text: string; calls: ParsedCall[] } {
  const names = (Array.isArray(tools) ? tools : []).map(nameOf);
  if (names.length === 0 || !text.includes(OPEN)) return { text, calls: [] };
  const written = [...text.matchAll(/<tool_call>([^]*?)<\/tool_call>|<tool_call>([^]*)/g)]
    .map(([, whole, cut]) => whole || cut || '')
    .filter((each) => each !== '');
  const parsed = written.map((each) => parseJson(each.trim()));
  if (parsed.some((each) => each === undefined)) return { text, calls: [] };
  const calls = parsed
    .flat()
    .filter(isObject)
    .flatMap(({ name, parameters, arguments: given }): ParsedCall[] => {
      const tool_index = typeof name === 'string' ? names.indexOf(name) : -1;
      return tool_index < 0
        ? []
        : [{ tool_index, name: String(name), parameters: spaced(isFilled(parameters) ? parameters : (given ?? {})) }];
    });
  return { text: text.slice(0, text.indexOf(OPEN)).trim(), calls };
}

/** Takes reasoning out of a text as the parsers for `<think>` do. */
export function parseReasoning(text: string): { reasoning: string; text: string } {
  if (!text.includes('<think>')) return { reasoning: '', text };
  const inner = text.replace(/^(?:<think>)+/, '');
  const end = inner.indexOf('</think>');
  if (end < 0) return { reasoning: inner, text: '' };
  return { reasoning: inner.slice(0, end), text: inner.slice(end + '</think>'.length) };
}

function nameOf(tool: unknown): unknown {
  return isObject(tool) && isObject(tool.function) ? tool.function.name : undefined;
}

const isFilled = (value: unknown): boolean => isObject(value) && Object.keys(value).length > 0;

function parseJson(text: string): unknown {
  return parseObject(`{"value":${text}}`)?.value;
}

/** Writes JSON as Python does, with spaces after commas and colons. */
function spaced(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(spaced).join(', ')}]`;
  if (!isObject(value)) return JSON.stringify(value);
  return `{${Object.entries(value)
    .map(([key, each]) => `${JSON.stringify(key)}: ${spaced(each)}`)
    .join(', ')}}`;
}
