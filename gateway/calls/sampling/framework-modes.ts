/** `mode` is a framework's setting that sends a request field, `instead` the setting whose calls are trained without the engine's mask. */
type Advice = { mode: string; instead: string };
type Framework = { name: string; agent: RegExp; fields: Record<string, Advice> };

const PROMPTED_OUTPUT =
  'PromptedOutput with a profile of supports_json_object_output=False and openai_supports_strict_tool_definition=False';

const FRAMEWORKS: readonly Framework[] = [
  {
    name: 'pydantic-ai',
    agent: /pydantic-ai/i,
    fields: {
      tool_choice: { mode: 'output_type', instead: PROMPTED_OUTPUT },
      response_format: { mode: 'NativeOutput or PromptedOutput', instead: PROMPTED_OUTPUT },
      strict_tools: {
        mode: 'tools, which are strict where their schema allows that',
        instead: 'a profile of openai_supports_strict_tool_definition=False, or strict=False on each tool',
      },
    },
  },
  {
    name: 'OpenAI Agents SDK',
    agent: /^Agents\//i,
    fields: {
      tool_choice: { mode: 'tool_choice of the model settings', instead: 'the tool_choice auto' },
      response_format: { mode: 'output_type', instead: 'no output_type' },
      strict_tools: {
        mode: 'function tools, which are strict by default',
        instead: 'strict_mode=False (Python) or strict: false (JavaScript) on each tool',
      },
    },
  },
  {
    name: 'AI SDK',
    agent: /\bai-sdk\//i,
    fields: {
      tool_choice: { mode: 'toolChoice', instead: 'the toolChoice auto' },
      response_format: { mode: 'Output.object', instead: 'no output' },
      strict_tools: { mode: 'strict tools', instead: 'tools without strict' },
    },
  },
  {
    name: 'Google ADK',
    agent: /google-adk/i,
    fields: {
      tool_choice: { mode: 'the function calling mode ANY', instead: 'the function calling mode AUTO' },
      response_format: {
        mode: 'output_schema on an agent without tools',
        instead: 'output_schema on an agent with a tool, which then answers by the tool set_model_response',
      },
    },
  },
];

/** Most frameworks use OpenAI's or Anthropic's own SDK and do not name themselves. */
const ANY_FRAMEWORK: Record<string, Advice> = {
  tool_choice: {
    mode: "such as LangGraph's ToolStrategy, smolagents' ToolCallingAgent, LlamaIndex's output_cls or the SDK's tool_choice",
    instead: 'the tool_choice auto',
  },
  response_format: {
    mode: "such as LangGraph's ProviderStrategy, LiteLLM's response_format, smolagents' structured CodeAgent, CrewAI's output_pydantic or the SDK's parse",
    instead: 'a prompt that asks for the form',
  },
  strict_tools: {
    mode: "such as all tools of CrewAI, the SDK's strict tools or LangGraph's ProviderStrategy",
    instead: 'tools without strict (in CrewAI by an interceptor)',
  },
};
const OWN_FIELD: Advice = { mode: 'set by the agent itself', instead: 'a prompt that asks for the form' };

/** Returns advice for the agent's author: which mode of the framework sends these fields, and what to do. */
export function constrainedAdvice(fields: readonly string[], userAgent: string | null): string {
  const framework = FRAMEWORKS.find(({ agent }) => agent.test(userAgent ?? ''));
  const advice = fields.map((field) => (framework?.fields ?? ANY_FRAMEWORK)[field] ?? OWN_FIELD);
  const joined = (texts: readonly string[], by: string): string => [...new Set(texts)].join(by);
  const sent = `${fields.join(' and ')} (${framework ? `${framework.name}: ` : ''}${joined(
    advice.map(({ mode }) => mode),
    '; ',
  )})`;
  const instead = joined(
    advice.map((each) => each.instead),
    ', and ',
  );
  return `the requests use ${sent}, so the engine forces the form of the reply by a grammar. Such calls are trained only with the engine's sampling mask. Set \`constrained_decoding: hint\` in the run file, or use ${instead} (docs/clients/README.md)`;
}
