/** The framework settings that produce each request field, and the setting to use instead so that calls train without the engine's mask. */
type Framework = { name: string; agent: RegExp; modes: Record<string, string>; instead: string };

const FRAMEWORKS: readonly Framework[] = [
  {
    name: 'pydantic-ai',
    agent: /pydantic-ai/i,
    modes: { tool_choice: 'output_type', response_format: 'NativeOutput or PromptedOutput', strict_tools: 'strict tools' },
    instead: 'PromptedOutput with a profile of supports_json_object_output=False',
  },
  {
    name: 'OpenAI Agents SDK',
    agent: /^Agents\//i,
    modes: { tool_choice: 'ModelSettings.tool_choice', response_format: 'output_type', strict_tools: 'function tools, which are strict unless they say strict_mode=False' },
    instead: 'strict_mode=False and no output_type',
  },
  { name: 'AI SDK', agent: /ai-sdk/i, modes: { tool_choice: 'toolChoice', response_format: 'Output.object' }, instead: 'toolChoice auto and no output' },
];

/** Most frameworks use OpenAI's or Anthropic's own SDK and do not name themselves. */
const OTHERS: Record<string, string> = {
  tool_choice: "such as LangGraph's ToolStrategy, smolagents' ToolCallingAgent or pydantic-ai's output_type",
  response_format: "such as LangGraph's ProviderStrategy, LiteLLM's response_format, smolagents' structured CodeAgent or the SDK's parse",
  strict_tools: "such as the OpenAI Agents SDK's function tools",
};

/** Returns a text for people that names the framework's mode that sends these fields, and what the agent's author can do. */
export function constrainedAdvice(fields: readonly string[], userAgent: string | null): string {
  const framework = FRAMEWORKS.find(({ agent }) => agent.test(userAgent ?? ''));
  const modes = fields.map((field) => (framework ? framework.modes[field] : OTHERS[field]) ?? 'by its own request');
  const asked = `${fields.join(' and ')} (${framework ? `${framework.name}: ` : ''}${[...new Set(modes)].join('; ')})`;
  const instead = framework ? `, or use ${framework.instead}` : '';
  return `${asked} holds replies to a form by a grammar, and such calls train only with the engine's sampling mask. Set constrained_decoding: hint${instead} (docs/clients/README.md)`;
}
