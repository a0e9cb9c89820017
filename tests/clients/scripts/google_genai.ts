/** Google's Gen AI SDK for Node. It finds GOOGLE_GEMINI_BASE_URL and GEMINI_API_KEY in its environment. */
import { FunctionCallingConfigMode, GoogleGenAI, Type, type Content, type GenerateContentParameters, type GenerateContentResponse } from '@google/genai';

const client = new GoogleGenAI({});

/** Asks the policy once. */
async function minimal(text: string): Promise<string> {
  const reply = await client.models.generateContent({ model: 'policy', contents: text });
  return reply.text ?? '';
}

const tools = [{ functionDeclarations: [{ name: 'ls', description: 'lists a folder', parameters: { type: Type.OBJECT, properties: { path: { type: Type.STRING } } } }] }];
const seen = { type: Type.OBJECT, properties: { name: { type: Type.STRING }, count: { type: Type.INTEGER } }, required: ['name', 'count'] };
const prompt = (mode: string): string => `Look into the folder (${mode}).`;
const asked = (mode: string): Content => ({ role: 'user', parts: [{ text: prompt(mode) }] });

/** Returns the replies of one turn, which are several when it streams. */
async function turn(talk: GenerateContentParameters, stream: boolean): Promise<GenerateContentResponse[]> {
  if (!stream) return [await client.models.generateContent(talk)];
  const replies = [];
  for await (const reply of await client.models.generateContentStream(talk)) replies.push(reply);
  return replies;
}

async function converse(mode: string, stream: boolean): Promise<void> {
  const contents = [asked(mode)];
  const config = { systemInstruction: 'Use your tools.', tools, maxOutputTokens: 100 };
  const { totalTokens = 0 } = await client.models.countTokens({ model: 'policy', contents });
  if (totalTokens <= 0) throw new Error('no tokens are counted');
  for (let round = 0; round < 4; round++) {
    const replies = await turn({ model: 'policy', contents, config }, stream);
    const { promptTokenCount = 0, candidatesTokenCount = 0 } = replies.at(-1)?.usageMetadata ?? {};
    if (promptTokenCount <= 0 || candidatesTokenCount <= 0) throw new Error('a reply without its usage');
    contents.push(...replies.flatMap(({ candidates }) => candidates?.[0]?.content ?? []));
    const results = replies.flatMap(({ functionCalls = [] }) => functionCalls).map(({ id, name }) => ({ functionResponse: { id, name, response: { output: 'a.txt' } } }));
    contents.push({ role: 'user', parts: results.length > 0 ? results : [{ text: 'go on' }] });
  }
}

async function chat(mode: string): Promise<void> {
  if (!(await minimal(prompt(mode)))) throw new Error('no reply');
  const session = client.chats.create({ model: 'policy' });
  if (!(await session.sendMessage({ message: prompt(mode) })).text) throw new Error('no reply');
  for await (const { usageMetadata } of await session.sendMessageStream({ message: 'go on' })) if ((usageMetadata?.promptTokenCount ?? 1) <= 0) throw new Error('a reply without its usage');
}

async function schema(mode: string): Promise<void> {
  const { text } = await client.models.generateContent({ model: 'policy', contents: prompt(mode), config: { responseMimeType: 'application/json', responseSchema: seen } });
  if (text !== '{"name":"a.txt","count":1}') throw new Error('the reply is not what the schema asks for');
}

async function anyTool(mode: string): Promise<void> {
  const config = { tools, toolConfig: { functionCallingConfig: { mode: FunctionCallingConfigMode.ANY } } };
  const { functionCalls } = await client.models.generateContent({ model: 'policy', contents: prompt(mode), config });
  if (functionCalls?.[0]?.name !== 'ls') throw new Error('no tool is called');
}

const MODES = new Map<string, (mode: string) => Promise<void>>([
  ['generateContent', (mode) => converse(mode, false)],
  ['generateContent, streamed', (mode) => converse(mode, true)],
  ['chats', chat],
  ['responseSchema', schema],
  ['function calling ANY', anyTool],
]);
for (const mode of process.argv.slice(2)) await MODES.get(mode)?.(mode);
