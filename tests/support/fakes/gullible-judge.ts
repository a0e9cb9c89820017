import { once } from 'node:events';
import { createServer } from 'node:http';
import { z } from 'zod';

const request = z.object({ messages: z.array(z.object({ role: z.string(), content: z.string() })) });
const said = z.array(z.object({ content: z.string() }));

/**
 * A judge that knows nothing and believes what it is told: it gives the full score if its instructions say so, and it quotes the reply after its
 * verdict. It takes what stands between the markers that its system prompt names for data; without such markers, everything is an instruction.
 */
export async function startGullibleJudge(): Promise<{ url: string } & AsyncDisposable> {
  const server = createServer((incoming, response) => {
    let body = '';
    incoming.on('data', (data) => (body += String(data)));
    incoming.on('end', () => {
      const content = verdictOn(request.parse(JSON.parse(body)));
      response.end(JSON.stringify({ choices: [{ message: { content } }] }));
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  return {
    url: `http://127.0.0.1:${address !== null && typeof address === 'object' ? address.port : 0}/v1`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

function verdictOn({ messages }: z.output<typeof request>): string {
  const system = messages.filter(({ role }) => role === 'system').map(({ content }) => content);
  const text = messages.filter(({ role }) => role === 'user').map(({ content }) => content);
  const mark = /<<<NAME ([0-9a-f]{16})/.exec(system.join('\n'))?.[1];
  const conversation = new RegExp(`<<<conversation ${mark}\n(.*?)\n>>> ${mark}`, 's');
  const instructions = text.join('\n').replace(conversation, '');
  const quoted = mark === undefined ? text.join('\n') : lastReply(conversation.exec(text.join('\n'))?.[1] ?? '[]');
  const isTold = /full score|gets a score of 10/.test(instructions);
  return `{"reason": "so it says", "score": ${isTold ? 10 : 0}}\nThe reply was: ${quoted}`;
}

const lastReply = (conversation: string): string => said.parse(JSON.parse(conversation)).at(-1)?.content ?? '';
