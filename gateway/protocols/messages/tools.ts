import type { JsonObject } from '../../json.ts';
import { withoutNulls } from '../without-nulls.ts';
import type { CountRequest, Tool } from './shape.ts';

/** Returns the tools in force at the end of a conversation. System messages may add and remove tools. */
export function toolsInForce({ tools, messages }: Pick<CountRequest, 'tools' | 'messages'>): Tool[] {
  const byName = new Map((tools ?? []).flatMap((tool) => (isShown(tool) ? [[tool.name, tool] as const] : [])));
  const removed = new Set<string>();
  for (const { content } of messages) {
    for (const block of typeof content === 'string' ? [] : content) {
      if (block.type === 'tool_removal') removed.add(block.tool.name);
      if (block.type !== 'tool_addition') continue;
      const { tool } = block;
      const added = tool.type === 'tool_definition' ? tool.definition : byName.get(tool.name);
      if (!added) continue;
      byName.set(added.name, tool.type === 'tool_definition' ? added : { ...added, defer_loading: null });
      removed.delete(added.name);
    }
  }
  return [...byName.values()].filter(({ name }) => !removed.has(name));
}

const isShown = (tool: NonNullable<CountRequest['tools']>[number]): tool is Tool =>
  !('value' in tool && tool.type === 'unserved');

export function chatTool({ name, description, input_schema: schema, strict, defer_loading }: Tool): JsonObject {
  const parameters = 'type' in schema ? schema : { ...schema, type: 'object' };
  return { type: 'function', function: withoutNulls({ name, description, parameters, strict, defer_loading }) };
}

const KINDS = { auto: 'auto', any: 'required', none: 'none' };

/** Converts the choice. If the chosen tool is not shown to the model, the model chooses freely. */
export function chatToolChoice(choice: NonNullable<CountRequest['tool_choice']>, tools: readonly Tool[]): JsonObject {
  const isKnown = choice.type !== 'tool' || tools.some(({ name }) => name === choice.name);
  return {
    tool_choice:
      choice.type !== 'tool'
        ? KINDS[choice.type]
        : isKnown
          ? { type: 'function', function: { name: choice.name } }
          : 'auto',
    parallel_tool_calls: choice.disable_parallel_tool_use !== true,
  };
}
