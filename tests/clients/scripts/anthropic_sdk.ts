/** Anthropic's Node SDK. It finds ANTHROPIC_BASE_URL and ANTHROPIC_AUTH_TOKEN in its environment. */
import Anthropic from '@anthropic-ai/sdk';

const client = new Anthropic();

/** Asks the policy once. */
async function minimal(text: string): Promise<string> {
  const { content } = await client.messages.create({ model: 'policy', max_tokens: 100, messages: [{ role: 'user', content: text }] });
  return content.map((block) => (block.type === 'text' ? block.text : '')).join('');
}

const tools: Anthropic.Tool[] = [{ name: 'ls', description: 'lists a folder', input_schema: { type: 'object', properties: { path: { type: 'string' } } } }];
const seen = { type: 'object', properties: { name: { type: 'string' }, count: { type: 'integer' } }, required: ['name', 'count'], additionalProperties: false };
const asked = (mode: string) => ({ model: 'policy', max_tokens: 100, messages: [{ role: 'user' as const, content: `Look into the folder (${mode}).` }] });

async function converse(mode: string, stream: boolean): Promise<void> {
  const { messages: first, ...more } = asked(mode);
  const messages: Anthropic.MessageParam[] = first;
  const { input_tokens } = await client.messages.countTokens({ model: 'policy', messages, tools });
  if (input_tokens <= 0) throw new Error('no tokens are counted');
  for (let turn = 0; turn < 4; turn++) {
    const talk = { ...more, system: 'Use your tools.', tools, messages };
    const { content, usage } = stream ? await client.messages.stream(talk).finalMessage() : await client.messages.create(talk);
    if (usage.input_tokens <= 0 || usage.output_tokens <= 0) throw new Error('a message without its usage');
    messages.push({ role: 'assistant', content });
    const results = content.flatMap((block): Anthropic.ToolResultBlockParam[] => (block.type === 'tool_use' ? [{ type: 'tool_result', tool_use_id: block.id, content: [{ type: 'text', text: 'a.txt' }] }] : []));
    messages.push({ role: 'user', content: results.length > 0 ? results : 'go on' });
  }
}

async function parse(mode: string): Promise<void> {
  const { parsed_output } = await client.messages.parse({ ...asked(mode), output_config: { format: { type: 'json_schema', schema: seen, parse: JSON.parse } } });
  if (JSON.stringify(parsed_output) !== '{"name":"a.txt","count":1}') throw new Error('the reply is not what the schema asks for');
}

async function anyTool(mode: string): Promise<void> {
  const { content } = await client.messages.create({ ...asked(mode), tools, tool_choice: { type: 'any' } });
  if (content.at(-1)?.type !== 'tool_use') throw new Error('no tool is called');
}

async function retry(mode: string): Promise<void> {
  if (!(await minimal(`Look into the folder (${mode}).`))) throw new Error('no reply');
}

const MODES = new Map<string, (mode: string) => Promise<void>>([
  ['messages', (mode) => converse(mode, false)],
  ['messages, streamed', (mode) => converse(mode, true)],
  ['parse', parse],
  ['tool_choice any', anyTool],
  ['retry', retry],
]);
for (const mode of process.argv.slice(2)) await MODES.get(mode)?.(mode);
