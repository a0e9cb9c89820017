import { z } from 'zod';
import { asNumber } from '../../../core/exact-json.ts';
import { isObject } from '../../json.ts';

const camel = (name: string): string => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

/** An object of Google's API, whose fields may be written in either case. Fields of data inside it keep their names. */
const message = <S extends z.ZodRawShape>(shape: S) =>
  z.preprocess(
    (value) =>
      isObject(value) ? Object.fromEntries(Object.entries(value).map(([name, field]) => [camel(name), field])) : value,
    z.looseObject(shape),
  );

const number = z.preprocess(asNumber, z.number());
const count = z.preprocess(asNumber, z.int().min(1));
const data = z.record(z.string(), z.unknown());

const blob = message({ mimeType: z.string(), data: z.string() });
/** A part holds one of these, and possibly the marks of a thought. Parts of other kinds cannot be shown to the model. */
const part = message({
  text: z.string().nullish(),
  thought: z.boolean().nullish(),
  inlineData: blob.nullish(),
  functionCall: message({ id: z.string().nullish(), name: z.string(), args: z.unknown() }).nullish(),
  functionResponse: message({
    id: z.string().nullish(),
    name: z.string(),
    response: z.unknown(),
    parts: z.array(message({ text: z.string().nullish(), inlineData: blob.nullish() })).nullish(),
  }).nullish(),
});
const content = message({ role: z.string().nullish(), parts: z.array(part).nullish() });

const declaration = message({
  name: z.string(),
  description: z.string().nullish(),
  parameters: data.nullish(),
  parametersJsonSchema: data.nullish(),
});
/** Tools that Google runs itself (a search, an interpreter) do not exist here, so the model is not shown them. */
const tool = message({ functionDeclarations: z.array(declaration).nullish() });

const toolConfig = message({
  functionCallingConfig: message({
    mode: z.enum(['MODE_UNSPECIFIED', 'AUTO', 'ANY', 'NONE', 'VALIDATED']).nullish(),
    allowedFunctionNames: z.array(z.string()).nullish(),
  }).nullish(),
});

const generationConfig = message({
  temperature: number.nullish(),
  topP: number.nullish(),
  topK: number.nullish(),
  candidateCount: z.preprocess(asNumber, z.int().min(1).max(128)).nullish(),
  maxOutputTokens: count.nullish(),
  stopSequences: z.array(z.string()).nullish(),
  seed: z.preprocess(asNumber, z.int()).nullish(),
  presencePenalty: number.nullish(),
  frequencyPenalty: number.nullish(),
  responseMimeType: z
    .enum(['text/plain', 'application/json'], 'is text/plain or application/json: other forms are not served here')
    .nullish(),
  responseSchema: data.nullish(),
  responseJsonSchema: data.nullish(),
  responseLogprobs: z.boolean().nullish(),
  logprobs: z.preprocess(asNumber, z.int().min(0)).nullish(),
  responseModalities: z.array(z.literal('TEXT', 'TEXT is the only modality of replies here')).nullish(),
  thinkingConfig: message({
    includeThoughts: z.boolean().nullish(),
    thinkingBudget: z.preprocess(asNumber, z.int()).nullish(),
    thinkingLevel: z.string().nullish(),
  }).nullish(),
});

const absent = (why: string) => z.literal(null, why).nullish();

/** The body of Gemini's `generateContent`. */
export const generateRequest = message({
  contents: z.array(content).min(1, 'at least one content is needed'),
  systemInstruction: content.nullish(),
  tools: z.array(tool).nullish(),
  toolConfig: toolConfig.nullish(),
  generationConfig: generationConfig.nullish(),
  cachedContent: absent('is not served here: send the contents'),
});

const counted = message({
  contents: z.array(content).nullish(),
  generateContentRequest: generateRequest.nullish(),
});

/** The body of Gemini's `countTokens`: contents alone, or a whole request. */
export const countRequest = counted.refine(
  ({ contents, generateContentRequest: whole }) => whole || contents?.length,
  'at least one content is needed',
);

/** The part of a request that says what the agent wants to see of the reply. */
export const thoughtsRequest = message({
  generationConfig: message({
    thinkingConfig: message({ includeThoughts: z.boolean().nullish() }).nullish(),
  }).nullish(),
});

export type GenerateRequest = z.output<typeof generateRequest>;
export type Content = z.output<typeof content>;
export type Part = z.output<typeof part>;
export type Declaration = z.output<typeof declaration>;
