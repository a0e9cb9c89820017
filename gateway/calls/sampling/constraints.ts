import { ENGINES } from '../../engines/all.ts';
import type { BindsTools } from '../../engines/engine.ts';
import { asGrammar, asObject, asSchema } from '../../engines/hints.ts';
import { isObject, isSet, type JsonObject } from '../../json.ts';

/** The engines' own fields for a grammar, with the words that tell a model the same. */
const GRAMMARS = new Map(ENGINES.flatMap(({ fields }) => [...fields.grammars]));
const GRAMMAR_FIELDS = [...GRAMMARS.keys()];

/** Returns the fields of a chat request that force the form of the reply. The engine then excludes tokens while it samples. */
export function constraintsOf(body: JsonObject, bindsTools: BindsTools): string[] {
  const found = GRAMMAR_FIELDS.filter((field) => isSet(body[field]));
  if (isForced(body.tool_choice)) found.push('tool_choice');
  else if (isBound(body, bindsTools)) found.push('strict_tools');
  if (isFormat(body.response_format)) found.push('response_format');
  return found;
}

/** True when the constraints can become a hint. Only a chat can receive an instruction in words. */
export const canRelax = ({ messages }: JsonObject): boolean => Array.isArray(messages) && messages.length > 0;

/**
 * Returns the request without these fields and with a hint at the end of its prompt. The hint asks the model for the form, and the engine
 * samples from all tokens. Tools stay, so that the engine still parses tool calls.
 */
export function relaxed(body: JsonObject): JsonObject {
  const constraints = constraintsOf(body, 'strict');
  if (constraints.length === 0 || !canRelax(body)) return body;
  const { response_format: format, tool_choice: choice, ...rest } = body;
  const free: JsonObject = Object.fromEntries(Object.entries(rest).filter(([field]) => !GRAMMARS.has(field)));
  if (isFormat(format)) free.response_format = undefined;
  else if (format !== undefined) free.response_format = format;
  if (choice !== undefined) free.tool_choice = isForced(choice) ? 'auto' : choice;
  if (Array.isArray(body.tools)) free.tools = body.tools.map(withoutStrict);
  const hint = hintOf(body);
  return hint === '' ? free : { ...free, messages: withHint(body, hint) };
}

function hintOf(body: JsonObject): string {
  if (isForced(body.tool_choice)) return toolHint(body);
  const form = [
    formatHint(body.response_format),
    ...[...GRAMMARS].map(([field, say]) => (isSet(body[field]) ? say(body[field]) : '')),
  ]
    .filter((each) => each !== '')
    .join(' ');
  const mayCall = Array.isArray(body.tools) && body.tools.length > 0 && body.tool_choice !== 'none';
  return form !== '' && mayCall ? `When you answer without calling a tool: ${form}` : form;
}

function toolHint({ tool_choice: choice, tools }: JsonObject): string {
  const named = isObject(choice) && isObject(choice.function) ? choice.function.name : null;
  if (typeof named === 'string') return `Answer by calling the tool ${named}.`;
  const names = (Array.isArray(tools) ? tools : []).flatMap((tool) =>
    isObject(tool) && isObject(tool.function) && typeof tool.function.name === 'string' ? [tool.function.name] : [],
  );
  return names.length === 1
    ? `Answer by calling the tool ${names[0]}.`
    : `Answer by calling one of these tools: ${names.join(', ')}.`;
}

function formatHint(format: unknown): string {
  if (!isFormat(format)) return '';
  if (format.type === 'json_object') return asObject();
  if (format.type === 'json_schema')
    return asSchema(isObject(format.json_schema) ? (format.json_schema.schema ?? format.json_schema) : {});
  return asGrammar(format);
}

/**
 * Adds the hint to the end of the last message, so that everything before it stays the prompt of an earlier turn and continues by its ids.
 * A reply that the model must continue stays unchanged.
 */
function withHint({ messages, continue_final_message: goesOn }: JsonObject, hint: string): unknown[] {
  const all: unknown[] = Array.isArray(messages) ? messages : [];
  const at = all.findLastIndex((message) => isObject(message) && message.role !== 'assistant');
  if (at < 0 || (at < all.length - 1 && goesOn !== true)) return [...all, { role: 'user', content: hint }];
  return all.map((message, i) =>
    i === at && isObject(message) ? { ...message, content: added(message.content, hint) } : message,
  );
}

function added(content: unknown, hint: string): unknown {
  if (Array.isArray(content)) return [...content, { type: 'text', text: hint }];
  return typeof content === 'string' && content !== '' ? `${content}\n\n${hint}` : hint;
}

function withoutStrict(tool: unknown): unknown {
  if (!isObject(tool) || !isObject(tool.function)) return tool;
  const { strict: _, ...rest } = tool.function;
  return { ...tool, function: rest };
}

const isForced = (choice: unknown): boolean => isSet(choice) && choice !== 'auto' && choice !== 'none';

const isFormat = (format: unknown): format is JsonObject => isObject(format) && format.type !== 'text';

function isBound({ tools, tool_choice: choice }: JsonObject, bindsTools: BindsTools): boolean {
  if (!Array.isArray(tools) || tools.length === 0 || choice === 'none' || bindsTools === 'never') return false;
  return (
    bindsTools === 'always' ||
    tools.some((tool) => isObject(tool) && isObject(tool.function) && tool.function.strict === true)
  );
}
