import { createParser } from 'eventsource-parser';
import { Pool } from 'undici';
import { z } from 'zod';
import type { Target } from '../cell.ts';
import { fields, question } from './bodies.ts';
import type { Line } from './wrk.ts';

const usage = z.object({ completion_tokens: z.number() });
const whole = z.object({ choices: z.array(z.object({ message: z.object({ content: z.string() }) })), usage });
const chunk = z.object({ choices: z.array(z.object({ delta: z.object({ content: z.string().nullish() }) })), usage: usage.nullish() });

export type Said = { text: string; tokens: number };
export type Talk = { line: Line; messages: string; turns: number };

export const openPool = (url: string, connections: number): Pool =>
  url.startsWith('unix:') ? new Pool('http://engine', { connections, socketPath: url.slice('unix:'.length), headersTimeout: 0, bodyTimeout: 0 }) : new Pool(url, { connections, headersTimeout: 0, bodyTimeout: 0 });

/** Asks a real engine for the next turn of a conversation, always as many tokens. Returns how many came. */
export async function nextTurn(pool: Pool, target: Target, talk: Talk, { stream, tokens, signal }: { stream: boolean; tokens: number; signal: AbortSignal }): Promise<number> {
  const asked = talk.messages + question(talk.line.name, ++talk.turns);
  const body = `{"messages":[${asked}],"ignore_eos":true,${fields({ stream, tokens, direct: target.direct })}}`;
  const headers = { authorization: `Bearer ${talk.line.key}`, 'content-type': 'application/json' };
  const reply = await pool.request({ method: 'POST', path: talk.line.path, headers, body, signal });
  if (reply.statusCode !== 200) throw new Error(`${target.name} answered ${reply.statusCode}: ${await reply.body.text()}`);
  const said = stream ? await readStream(reply.body) : readWhole(await reply.body.json());
  talk.messages = `${asked},{"role":"assistant","content":${JSON.stringify(said.text)}},`;
  return said.tokens;
}

function readWhole(json: unknown): Said {
  const { choices, usage: counted } = whole.parse(json);
  return { text: choices[0]?.message.content ?? '', tokens: counted.completion_tokens };
}

async function readStream(body: AsyncIterable<Uint8Array>): Promise<Said> {
  const said = { text: '', tokens: 0 };
  let ended = false;
  const take = (data: string) => {
    if (data === '[DONE]') {
      ended = true;
      return;
    }
    const { choices, usage: counted } = chunk.parse(JSON.parse(data));
    said.text += choices[0]?.delta.content ?? '';
    said.tokens = counted?.completion_tokens ?? said.tokens;
  };
  const parser = createParser({ onEvent: (event) => take(event.data) });
  const decoder = new TextDecoder();
  for await (const bytes of body) parser.feed(decoder.decode(bytes, { stream: true }));
  if (!ended) throw new Error('a stream ended too early');
  return said;
}
