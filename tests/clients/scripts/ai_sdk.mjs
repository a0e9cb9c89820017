/** Uses Vercel's AI SDK in four ways. It finds OPENAI_BASE_URL, OPENAI_API_KEY and ANTHROPIC_API_KEY in its environment. */
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, isStepCount, Output, streamText, tool } from 'ai';
import { z } from 'zod';

const { ANTHROPIC_BASE_URL, OPENAI_API_KEY, OPENAI_BASE_URL } = process.env;
const openai = createOpenAI();
const compatible = createOpenAICompatible({ name: 'trial', baseURL: OPENAI_BASE_URL, apiKey: OPENAI_API_KEY });
// This provider, unlike Anthropic's own SDK, wants the base URL with `/v1`.
const anthropic = createAnthropic({ baseURL: `${ANTHROPIC_BASE_URL}/v1` });

const ls = tool({ description: 'Lists a folder.', inputSchema: z.object({ path: z.string() }), execute: async () => 'a.txt' });

/** Asks the policy, which may call the tool. */
async function minimal(prompt) {
  const result = await generateText({ model: openai.chat('policy'), prompt, tools: { ls }, stopWhen: isStepCount(5) });
  return result.text;
}

const seen = z.object({ name: z.string(), count: z.int() });
const asking = (mode, model) => ({ model, prompt: `Look into the folder (${mode}).` });
const withTools = { tools: { ls }, stopWhen: isStepCount(5) };

async function text(mode, model, more = {}) {
  if (!(await generateText({ ...asking(mode, model), ...withTools, ...more })).text) throw new Error('no text');
}

async function stream(mode) {
  if (!(await streamText({ ...asking(mode, openai.chat('policy')), ...withTools }).text)) throw new Error('no text');
}

async function structured(mode) {
  const { output } = await generateText({ ...asking(mode, openai.chat('policy')), output: Output.object({ schema: seen }) });
  if (output.name !== 'a.txt' || output.count !== 1) throw new Error('the output is not what the schema asks for');
}

async function required(mode) {
  const { toolCalls } = await generateText({ ...asking(mode, openai.chat('policy')), tools: { ls }, toolChoice: 'required' });
  if (toolCalls.length !== 1) throw new Error('no tool is called');
}

async function retry(mode) {
  if (!(await minimal(`Look into the folder (${mode}).`))) throw new Error('no text');
}

const MODES = {
  chat: (mode) => text(mode, openai.chat('policy')),
  'chat, streamed': stream,
  compatible: (mode) => text(mode, compatible('policy')),
  messages: (mode) => text(mode, anthropic('policy')),
  responses: (mode) => text(mode, openai('policy')),
  'responses, store: false': (mode) => text(mode, openai('policy'), { providerOptions: { openai: { store: false } } }),
  'Output.object': structured,
  'toolChoice required': required,
  retry,
};
for (const mode of process.argv.slice(2)) await MODES[mode](mode);
