import { z } from 'zod';
import type { ModelRequest } from '../model-request.ts';
import { routeAt } from '../paths.ts';
import { isObject } from '../../json.ts';
import { openai } from './openai.ts';
import { readRequest, requestWith } from './read-request.ts';
import type { Protocol } from '../protocol.ts';

const PATH = '/v1/chat/completions';
const shape = requestWith({
  messages: z.array(z.looseObject({ role: z.string() })).min(1, 'at least one message is needed'),
});

/** OpenAI's chat completions. Some agents add the trial to the end of the path. */
export const chatCompletions: Protocol = {
  ...openai,
  name: 'chat_completions',
  ...routeAt(PATH, [`${PATH}/:trial`]),
  parse: ({ bytes }) => withoutOtherTools(readRequest(bytes, { kind: 'chat', shape, protocol: chatCompletions })),
};

/** Leaves out tools that are not functions, such as OpenAI's custom tools, because an engine refuses the whole request for one of them. */
function withoutOtherTools(request: ModelRequest): ModelRequest {
  const { tools } = request.body;
  if (!Array.isArray(tools) || !tools.some(isOther)) return request;
  const { tools: _, tool_choice: choice, ...rest } = request.body;
  const shown = tools.filter((tool) => !isOther(tool));
  const leftOut = tools.flatMap((value, i) => (isOther(value) && isObject(value) ? [{ at: `tools.${i}`, value }] : []));
  const chosen = choice === undefined ? {} : { tool_choice: isOther(choice) ? 'auto' : choice };
  return { ...request, body: shown.length > 0 ? { ...rest, tools: shown, ...chosen } : rest, leftOut };
}

const isOther = (tool: unknown): boolean => isObject(tool) && typeof tool.type === 'string' && tool.type !== 'function';
