import { z } from 'zod';
import { readRequest, type ModelRequest } from '../chat/request.ts';
import { isObject } from '../json.ts';
import { openai } from './openai.ts';
import type { Protocol } from './protocol.ts';

const PATH = '/v1/chat/completions';
const shape = z.looseObject({
  messages: z.array(z.looseObject({ role: z.string() })).min(1, 'at least one message is needed'),
});

/** OpenAI's chat completions, in vLLM's form. */
export const chatCompletions: Protocol = {
  ...openai,
  name: 'chat_completions',
  path: PATH,
  parse: (bytes) => withoutOtherTools(readRequest(bytes, { route: PATH, shape, protocol: chatCompletions })),
};

/** Leaves out tools that are not functions, such as OpenAI's custom tools, because an engine refuses the whole request for one of them. */
function withoutOtherTools(request: ModelRequest): ModelRequest {
  const { tools, tool_choice: choice, ...rest } = request.body;
  if (!Array.isArray(tools) || !tools.some(isOther)) return request;
  const shown = tools.filter((tool) => !isOther(tool));
  const leftOut = tools.flatMap((value, i) => (isOther(value) && isObject(value) ? [{ at: `tools.${i}`, value }] : []));
  const chosen = choice === undefined ? {} : { tool_choice: isOther(choice) ? 'auto' : choice };
  return { ...request, body: shown.length > 0 ? { ...rest, tools: shown, ...chosen } : rest, leftOut };
}

const isOther = (tool: unknown): boolean => isObject(tool) && typeof tool.type === 'string' && tool.type !== 'function';
