import { textOf } from '../engine/replies.ts';

/** A message with a place for a trial's name and a number: no two calls say the same. */
export const QUESTION = '{"role":"user","content":"%s asks for the %08d. time: which file holds the handler of the request, and what does its last test say of the failure that we saw yesterday evening?"}';


export const question = (name: string, number: number): string =>
  QUESTION.replace('%s', name).replace('%08d', String(number).padStart(8, '0'));

/** What stands between a question and the next one: the reply to it, as the agent sends it back. */
export const replyMessage = (tokens: number): string => `,{"role":"assistant","content":${JSON.stringify(textOf(tokens))}},`;

/** The first `turns` questions of a conversation, each but the last with its reply. */
export function conversation(name: string, turns: number, tokens: number): string {
  const reply = replyMessage(tokens);
  return Array.from({ length: turns }, (_, i) => question(name, i + 1)).join(reply);
}

type Wishes = { stream: boolean; tokens: number; direct: boolean };

/** The fields beside the messages. Who asks the engine itself asks for what the gateway asks for: ids and log-probabilities. */
export function fields({ stream, tokens, direct }: Wishes): string {
  const all = {
    model: 'policy',
    temperature: 1,
    max_tokens: tokens,
    ...(stream ? { stream: true, stream_options: { include_usage: true } } : {}),
    ...(direct ? { return_token_ids: true, logprobs: true, top_logprobs: 0 } : {}),
  };
  return JSON.stringify(all).slice(1, -1);
}

export const body = (messages: string, wishes: Wishes): string => `{"messages":[${messages}],${fields(wishes)}}`;
