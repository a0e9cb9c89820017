import type { Answer } from './answer.ts';
import type { Call } from './call.ts';
import { hide, onlyChoice } from './hide.ts';
import { badReply } from './rejection.ts';
import { completionCount, tokensOf, versionsOf } from './tokens.ts';

/** Reads the reply whole, commits it, and only then hands it out. */
export async function plainReply(call: Call, answer: Answer): Promise<Response> {
  const body = await answer.whole();
  const choice = onlyChoice(body);
  if (!choice) throw badReply('has no choice');
  const shown = hide(body, call.request.wants);
  const tokens = tokensOf(body, choice);
  call.firstTokenAt = new Date();
  call.ending = () => ({
    tokens,
    versions: versionsOf(choice),
    counted: completionCount(body.usage),
    finishReason: typeof choice.finish_reason === 'string' ? choice.finish_reason : null,
    reply: shown,
  });
  call.checkPrompt(tokens.prompt);
  await call.complete();
  return Response.json(shown, { headers: { 'x-trialgate-call': call.id } });
}
