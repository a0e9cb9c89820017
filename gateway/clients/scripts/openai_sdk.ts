/** OpenAI's client over several turns that call a tool: chat, plain and streamed, then responses, by items and by the response before. */
import OpenAI from 'openai';

const client = new OpenAI({ baseURL: `${process.env['TRIAL_URL']}/v1`, apiKey: process.env['TRIAL_KEY'] ?? '', maxRetries: 0 });
const parameters = { type: 'object', properties: { path: { type: 'string' } } };

async function chat(stream: boolean): Promise<void> {
  const tools = [{ type: 'function' as const, function: { name: 'ls', description: 'lists', parameters } }];
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'system', content: `chat ${stream}` }, { role: 'user', content: 'look' }];
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

async function responses(stream: boolean, byId: boolean): Promise<void> {
  const tools: OpenAI.Responses.Tool[] = [{ type: 'function', name: 'ls', description: 'lists', parameters, strict: false }];
  let input: OpenAI.Responses.ResponseInput = [{ role: 'user', content: 'look' }];
  let previous_response_id: string | null = null;
  for (let turn = 0; turn < 4; turn++) {
    const asked = { model: 'policy', instructions: `responses ${stream} ${byId}`, tools, input, previous_response_id };
    const reply: OpenAI.Responses.Response = stream ? await client.responses.stream(asked).finalResponse() : await client.responses.create(asked);
    const calls = reply.output.filter((item) => item.type === 'function_call');
    const results: OpenAI.Responses.ResponseInput = calls.map(({ call_id }) => ({ type: 'function_call_output', call_id, output: 'a.txt' }));
    const next: OpenAI.Responses.ResponseInput = results.length > 0 ? results : [{ role: 'user', content: 'go on' }];
    const said = reply.output.filter((item) => item.type === 'message' || item.type === 'reasoning' || item.type === 'function_call');
    if (byId) [input, previous_response_id] = [next, reply.id];
    else input = [...input, ...said, ...next];
  }
}

for (const stream of [false, true]) {
  await chat(stream);
  await responses(stream, false);
  await responses(stream, true);
}
const { data } = await client.models.list();
if (data.map(({ id }) => id).join() !== 'policy') throw new Error('the list of models is another');
