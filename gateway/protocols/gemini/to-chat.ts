import type { JsonObject } from '../../json.ts';
import type { LeftOut } from '../unserved.ts';
import { withoutNulls } from '../without-nulls.ts';
import { jsonSchemaOf } from './json-schema.ts';
import type { Declaration, GenerateRequest } from './shape.ts';
import { chatMessagesOf, leftOutParts, snake } from './to-chat-messages.ts';

type Settings = NonNullable<GenerateRequest['generationConfig']>;

/** Returns the equivalent chat request. */
export function chatBodyOf(
  asked: GenerateRequest,
  { model, stream }: { model: string | null; stream: boolean },
): JsonObject {
  const settings: Partial<Settings> = asked.generationConfig ?? {};
  const { candidateCount: n, stopSequences: stop } = settings;
  return withoutNulls({
    model,
    ...promptFieldsOf(asked),
    ...toolChoice(asked),
    max_tokens: settings.maxOutputTokens,
    n: n === 1 ? null : n,
    stop: stop?.length ? stop : null,
    temperature: settings.temperature,
    top_p: settings.topP,
    top_k: settings.topK,
    seed: settings.seed,
    presence_penalty: settings.presencePenalty,
    frequency_penalty: settings.frequencyPenalty,
    response_format: responseFormat(settings),
    ...(settings.responseLogprobs ? { logprobs: true, top_logprobs: settings.logprobs ?? 0 } : {}),
    stream: stream || null,
  });
}

/** Returns the fields that make the prompt. */
export function promptFieldsOf(asked: GenerateRequest): JsonObject {
  const tools = declarationsOf(asked);
  return withoutNulls({
    messages: chatMessagesOf(asked),
    tools: tools.length > 0 ? tools.map(chatTool) : null,
    reasoning_effort: effortOf(asked.generationConfig ?? {}),
  });
}

/** Returns the parts of the request that the model is not shown. */
export const leftOut = (asked: GenerateRequest): LeftOut[] => [
  ...leftOutParts(asked),
  ...(asked.tools ?? []).flatMap((tool, i) =>
    Object.entries(tool)
      .filter(([name, value]) => name !== 'functionDeclarations' && value !== null && value !== undefined)
      .map(([name, value]) => ({ at: `tools.${i}.${name}`, value: { type: snake(name), value } })),
  ),
];

const declarationsOf = ({ tools }: GenerateRequest): Declaration[] =>
  (tools ?? []).flatMap(({ functionDeclarations }) => functionDeclarations ?? []);

function chatTool({ name, description, parameters, parametersJsonSchema }: Declaration): JsonObject {
  const schema = parametersJsonSchema ?? (parameters ? jsonSchemaOf(parameters) : { type: 'object', properties: {} });
  return { type: 'function', function: withoutNulls({ name, description, parameters: schema }) };
}

/** A chat request cannot restrict which of its tools a model may call, unless it is a single one. */
function toolChoice(asked: GenerateRequest): JsonObject {
  const { mode, allowedFunctionNames: allowed } = asked.toolConfig?.functionCallingConfig ?? {};
  if (declarationsOf(asked).length === 0 || !mode) return {};
  const [only] = allowed ?? [];
  if (mode === 'ANY' && allowed?.length === 1) return { tool_choice: { type: 'function', function: { name: only } } };
  return { tool_choice: mode === 'ANY' ? 'required' : mode === 'NONE' ? 'none' : 'auto' };
}

function responseFormat({
  responseMimeType,
  responseSchema,
  responseJsonSchema,
}: Partial<Settings>): JsonObject | null {
  if (responseMimeType !== 'application/json') return null;
  const schema = responseJsonSchema ?? (responseSchema ? jsonSchemaOf(responseSchema) : null);
  return schema === null ? { type: 'json_object' } : { type: 'json_schema', json_schema: { name: 'response', schema } };
}

/** A budget of tokens for thinking is left out, because most engines refuse one and it changes what is sampled. */
function effortOf({ thinkingConfig }: Partial<Settings>): string | null {
  if (thinkingConfig?.thinkingBudget === 0) return 'none';
  return thinkingConfig?.thinkingLevel?.toLowerCase() ?? null;
}
