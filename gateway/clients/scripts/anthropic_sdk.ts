/** Anthropic's client over several turns that call a tool, plain and streamed. */
import Anthropic from '@anthropic-ai/sdk';

const client = new Anthropic({ baseURL: process.env['TRIAL_URL'], apiKey: process.env['TRIAL_KEY'], maxRetries: 0 });
const tools: Anthropic.Tool[] = [{ name: 'ls', description: 'lists', input_schema: { type: 'object', properties: { path: { type: 'string' } } } }];

async function converse(stream: boolean): Promise<void> {
  const messages: Anthropic.MessageParam[] = [{ role: 'user', content: 'look' }];
  const { input_tokens } = await client.messages.countTokens({ model: 'policy', messages, tools });
  if (input_tokens <= 0) throw new Error('no tokens are counted');
  for (let turn = 0; turn < 4; turn++) {
    const asked = { model: 'policy', max_tokens: 100, system: `messages ${stream}`, tools, messages };
    const { content, usage } = stream ? await client.messages.stream(asked).finalMessage() : await client.messages.create(asked);
    if (usage.input_tokens <= 0 || usage.output_tokens <= 0) throw new Error('a message without its usage');
    messages.push({ role: 'assistant', content });
    const results = content.flatMap((block): Anthropic.ToolResultBlockParam[] => (block.type === 'tool_use' ? [{ type: 'tool_result', tool_use_id: block.id, content: [{ type: 'text', text: 'a.txt' }] }] : []));
    messages.push({ role: 'user', content: results.length > 0 ? results : 'go on' });
  }
}

await converse(false);
await converse(true);
