import type { EngineTraits } from '../../engines/engine.ts';
import { isObject, isSet, type JsonObject } from '../../json.ts';

/** Returns how many tools of a request the model's chat template does not show to it; 0 when it shows them, and when that is not known. */
export function countNotShown(body: JsonObject, traits: EngineTraits | null): number {
  const { messages, tools, chat_template: own, chat_template_kwargs: variables } = body;
  if (traits?.showsTools !== false || !Array.isArray(messages) || !Array.isArray(tools)) return 0;
  // Some templates take tools as a variable of their own, such as `xml_tools` of SmolLM3's.
  const isOtherwiseShown = isObject(variables) && Object.keys(variables).some((name) => name.includes('tools'));
  return isSet(own) || isOtherwiseShown ? 0 : tools.length;
}

/** Returns a sentence for a person on a recorded call whose model did not see the request's tools; null for every other call. */
export function explainToolsNotShown({ sampling }: { sampling: Record<string, unknown> }): string | null {
  const { tools_not_shown: count } = sampling;
  if (typeof count !== 'number') return null;
  const [tools, them] = count === 1 ? ['1 tool', 'the tool'] : [`${count} tools`, 'the tools'];
  return `the request has ${tools}, this model's chat template shows none: the model does not see ${them}. Use a model whose chat template has tools (such as Qwen/Qwen2.5-0.5B-Instruct), or describe ${them} in the prompt`;
}
