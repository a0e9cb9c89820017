import { createParser } from 'eventsource-parser';
import { Pool } from 'undici';
import type { ProtocolName } from '../../../store/schema.ts';
import type { Target } from '../cell.ts';
import { body, FORMS, pathOf, question } from './bodies.ts';
import { READINGS, type Reading, type ReplyText } from './reply-text.ts';
import type { Line } from './wrk.ts';

export type Talk = { line: Line; messages: string; turns: number };

export const openPool = (url: string, connections: number): Pool =>
  url.startsWith('unix:')
    ? new Pool('http://engine', {
        connections,
        socketPath: url.slice('unix:'.length),
        headersTimeout: 0,
        bodyTimeout: 0,
      })
    : new Pool(url, { connections, headersTimeout: 0, bodyTimeout: 0 });

type TurnOptions = { protocol: ProtocolName; stream: boolean; tokens: number; signal: AbortSignal };

/** Makes the next turn of a conversation on a real engine, always with the same number of tokens. Returns the number that came. */
export async function nextTurn(
  pool: Pool,
  target: Target,
  talk: Talk,
  { protocol, stream, tokens, signal }: TurnOptions,
): Promise<number> {
  const form = FORMS[protocol];
  const asked = talk.messages + question(talk.line.name, ++talk.turns, form);
  const text = `{"ignore_eos":true,${body(asked, { stream, tokens, direct: target.direct }, form).slice(1)}`;
  const headers = { authorization: `Bearer ${talk.line.key}`, 'content-type': 'application/json' };
  const reply = await pool.request({
    method: 'POST',
    path: pathOf(talk.line.path, form, stream),
    headers,
    body: text,
    signal,
  });
  if (reply.statusCode !== 200)
    throw new Error(`${target.name} answered ${reply.statusCode}: ${await reply.body.text()}`);
  const replyText = stream
    ? await readStream(reply.body, READINGS[protocol], form.end)
    : READINGS[protocol].whole(await reply.body.json());
  talk.messages = asked + form.reply(replyText.text);
  return replyText.tokens;
}

async function readStream(bytes: AsyncIterable<Uint8Array>, { event }: Reading, end: string): Promise<ReplyText> {
  const replyText = { text: '', tokens: 0 };
  let last = '';
  const parser = createParser({
    onEvent: ({ event: name, data }) => {
      last = name ? `event: ${name}` : `data: ${data}`;
      if (data !== '[DONE]') event(JSON.parse(data), replyText);
    },
  });
  const decoder = new TextDecoder();
  for await (const each of bytes) parser.feed(decoder.decode(each, { stream: true }));
  if (!last.startsWith(end)) throw new Error(`a stream ended too early, with ${last}`);
  return replyText;
}
