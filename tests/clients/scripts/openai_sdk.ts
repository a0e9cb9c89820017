/** OpenAI's Node SDK. It finds OPENAI_BASE_URL and OPENAI_API_KEY in its environment. */
import OpenAI from 'openai';

const client = new OpenAI();

/** Asks the policy once. */
async function minimal(text: string): Promise<string | null | undefined> {
  const { choices } = await client.chat.completions.create({ model: 'policy', messages: [{ role: 'user', content: text }] });
  return choices[0]?.message.content;
}

const parameters = { type: 'object', properties: { path: { type: 'string' } } };
const tools = [{ type: 'function' as const, function: { name: 'ls', description: 'lists a folder', parameters } }];
const seen = { type: 'object', properties: { name: { type: 'string' }, count: { type: 'integer' } }, required: ['name', 'count'], additionalProperties: false };
const asking = (mode: string) => [{ role: 'user' as const, content: `Look into the folder (${mode}).` }];

async function chat(mode: string, stream: boolean): Promise<void> {
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'system', content: 'Use your tools.' }, ...asking(mode)];
  for (let turn = 0; turn < 4; turn++) {
    const asked = { model: 'policy', messages, tools };
    const { choices } = stream ? await client.chat.completions.stream(asked).finalChatCompletion() : await client.chat.completions.create(asked);
    const [choice] = choices;
    if (!choice) throw new Error('no choice');
    messages.push(choice.message);
    const calls = choice.message.tool_calls ?? [];
    for (const { id } of calls) messages.push({ role: 'tool', tool_call_id: id, content: 'a.txt' });
    if (calls.length === 0) messages.push({ role: 'user', content: 'go on' });
  }
}

async function responses(mode: string, stream: boolean, byId: boolean): Promise<void> {
  let input: OpenAI.Responses.ResponseInput = asking(mode);
  let previous_response_id: string | null = null;
  for (let turn = 0; turn < 4; turn++) {
    const asked = { model: 'policy', instructions: 'Use your tools.', tools: tools.map(({ function: ls }) => ({ type: 'function' as const, ...ls, strict: false })), input, previous_response_id };
    const reply: OpenAI.Responses.Response = stream ? await client.responses.stream(asked).finalResponse() : await client.responses.create(asked);
    const calls = reply.output.filter((item) => item.type === 'function_call');
    const results: OpenAI.Responses.ResponseInput = calls.map(({ call_id }) => ({ type: 'function_call_output', call_id, output: 'a.txt' }));
    const next: OpenAI.Responses.ResponseInput = results.length > 0 ? results : [{ role: 'user', content: 'go on' }];
    const said = reply.output.filter((item) => item.type === 'message' || item.type === 'reasoning' || item.type === 'function_call');
    if (byId) [input, previous_response_id] = [next, reply.id];
    else input = [...input, ...said, ...next];
  }
}

async function parse(mode: string): Promise<void> {
  const response_format = { type: 'json_schema' as const, json_schema: { name: 'seen', schema: seen, strict: true } };
  const { choices } = await client.chat.completions.parse({ model: 'policy', messages: asking(mode), response_format });
  if (JSON.stringify(choices[0]?.message.parsed) !== '{"name":"a.txt","count":1}') throw new Error('the reply is not what the schema asks for');
}

async function required(mode: string): Promise<void> {
  const { choices } = await client.chat.completions.create({ model: 'policy', messages: asking(mode), tools, tool_choice: 'required' });
  if (choices[0]?.message.tool_calls?.length !== 1) throw new Error('no tool is called');
}

async function retry(mode: string): Promise<void> {
  if (!(await minimal(`Look into the folder (${mode}).`))) throw new Error('no reply');
}

const MODES = new Map<string, (mode: string) => Promise<void>>([
  ['chat', (mode) => chat(mode, false)],
  ['chat, streamed', (mode) => chat(mode, true)],
  ['responses', (mode) => responses(mode, false, false)],
  ['responses, streamed', (mode) => responses(mode, true, false)],
  ['responses by id', (mode) => responses(mode, false, true)],
  ['responses by id, streamed', (mode) => responses(mode, true, true)],
  ['parse', parse],
  ['tool_choice required', required],
  ['retry', retry],
]);
for (const mode of process.argv.slice(2)) await MODES.get(mode)?.(mode);
const { data } = await client.models.list();
if (data.map(({ id }) => id).join() !== 'policy') throw new Error('the list of models is another');
