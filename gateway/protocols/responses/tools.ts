import { parseObject, type JsonObject } from '../../json.ts';
import { functionTool, type CustomTool, type FunctionTool, type Tool } from './shape.ts';

/** A tool under the name that the model sees, and the kind of calls that agents get. */
export type NamedTool =
  | { name: string; kind: 'function'; namespace: string | null; shown: FunctionTool }
  | { name: string; kind: 'custom'; shown: CustomTool };

/** Returns the functions that the model is shown: those of a namespace under both names, and tools of free text as functions of one text. */
export function namedTools(tools: readonly Tool[]): NamedTool[] {
  return tools.flatMap((tool): NamedTool[] => {
    if (tool.type === 'function') return [{ name: tool.name, kind: 'function', namespace: null, shown: tool }];
    if (tool.type === 'custom') return [{ name: tool.name, kind: 'custom', shown: tool }];
    if (tool.type === 'unserved') return [];
    return tool.tools.flatMap((inner) => {
      const { data } = functionTool.safeParse(inner);
      return data
        ? [{ name: flatName(tool.name, data.name), kind: 'function' as const, namespace: tool.name, shown: data }]
        : [];
    });
  });
}

export const flatName = (namespace: string | null | undefined, name: string): string =>
  namespace ? `${namespace}__${name}` : name;

export function chatTool(tool: NamedTool): JsonObject {
  const { name } = tool;
  const { description } = tool.shown;
  if (tool.kind === 'custom')
    return asFunction({ name, description: customDescription(tool.shown), parameters: ONE_TEXT });
  const { parameters, strict } = tool.shown;
  return asFunction({ name, description, parameters, strict });
}

function asFunction(fields: JsonObject): JsonObject {
  return {
    type: 'function',
    function: Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined)),
  };
}

const ONE_TEXT = {
  type: 'object',
  properties: { input: { type: 'string', description: 'The freeform text payload for this tool.' } },
  required: ['input'],
  additionalProperties: false,
};

/** Describes a tool's grammar in words, because the engine does not enforce it. */
function customDescription({ description, format }: CustomTool): string | null {
  const grammar = format?.definition
    ? `The input must match this ${format.syntax ?? ''} grammar:\n${format.definition}`
    : null;
  return [description, grammar].filter(Boolean).join('\n\n') || null;
}

export const asArguments = (input: string): string => JSON.stringify({ input });

/** Returns the free text in a tool call's arguments, or the arguments themselves if the model wrote them in another form. */
export function inputOf(given: string): string {
  const input = parseObject(given)?.input;
  return typeof input === 'string' ? input : given;
}
