import { readText, type EngineReply } from '../engines/connection.ts';
import type { Call } from './call.ts';
import { hide, onlyChoice } from './hide.ts';
import { badReply } from './rejection.ts';
import { parseObject } from '../json.ts';
import { completionCount, tokensOf } from './tokens.ts';

/** Reads the reply whole, commits it, and only then hands it out. */
export async function plainReply(call: Call, reply: EngineReply): Promise<Response> {
  const text = await readText(call.read(reply.body));
  const body = parseObject(text);
  if (!body) throw badReply(`is not a JSON object: ${text.slice(0, 200)}`);
  const choice = onlyChoice(body);
  if (!choice) throw badReply('has no choice');
  const shown = hide(body, call.request.wants);
  const tokens = tokensOf(body, choice);
  call.firstTokenAt = new Date();
  call.ending = () => ({
    tokens,
    counted: completionCount(body.usage),
    finishReason: typeof choice.finish_reason === 'string' ? choice.finish_reason : null,
    reply: shown,
  });
  call.checkPrompt(tokens.prompt);
  await call.complete();
  return Response.json(shown, { headers: { 'x-trialgate-call': call.id } });
}
