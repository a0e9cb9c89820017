/** OpenAI's Agents SDK for JavaScript. It finds OPENAI_BASE_URL and OPENAI_API_KEY in its environment, and speaks Responses by default. */
import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from '@openai/agents';
import { z } from 'zod';

// Traces go to OpenAI, which a sandbox does not reach.
setTracingDisabled(true);
// Tools are strict by default, and vLLM forces the calls of strict tools by a grammar. Tools that are not strict need a JSON schema instead of a Zod schema.
const parameters = { type: 'object', properties: { path: { type: 'string' } }, required: ['path'], additionalProperties: true };
const ls = tool({ name: 'ls', description: 'Lists a folder.', strict: false, parameters, execute: async () => 'a.txt' });

const strictLs = tool({ name: 'ls', description: 'Lists a folder.', parameters: z.object({ path: z.string() }), execute: async () => 'a.txt' });
const seen = z.object({ name: z.string(), count: z.int() });
const agent = (more = {}) => new Agent({ name: 'looker', instructions: 'Use your tools.', model: 'policy', tools: [ls], ...more });
const runner = (useResponses) => new Runner({ modelProvider: new OpenAIProvider({ useResponses }) });
const asking = (mode) => `Look into the folder (${mode}).`;

async function ask(mode, { useResponses = true, ...more } = {}) {
  const { finalOutput } = await runner(useResponses).run(agent(more), asking(mode));
  if (!finalOutput) throw new Error('no output');
  return finalOutput;
}

async function stream(mode) {
  const result = await runner(true).run(agent(), asking(mode), { stream: true });
  for await (const event of result) console.log(event.type);
  await result.completed;
  if (!result.finalOutput) throw new Error('no output');
}

async function structured(mode) {
  const { name, count } = await ask(mode, { outputType: seen });
  if (name !== 'a.txt' || count !== 1) throw new Error('the output is not what the schema asks for');
}

const MODES = {
  responses: (mode) => ask(mode),
  'responses, streamed': stream,
  chat: (mode) => ask(mode, { useResponses: false }),
  'strict tools': (mode) => ask(mode, { tools: [strictLs] }),
  outputType: structured,
  'toolChoice required': (mode) => ask(mode, { modelSettings: { toolChoice: 'required' } }),
  retry: (mode) => ask(mode),
};
for (const mode of process.argv.slice(2)) await MODES[mode](mode);
