import { choicesOf } from '../../store/calls/choices.ts';
import { jsonReply } from '../reply-formats.ts';
import type { Answer } from './answer.ts';
import type { Call } from './call.ts';
import { hide } from './hide.ts';
import { badReply } from './rejection.ts';
import { callHeaders } from '../request-id.ts';
import { completionCount, promptOf, sampledOf, versionsOf } from './tokens.ts';

/** Reads the reply whole, commits it, and only then sends it. */
export async function plainReply(call: Call, answer: Answer): Promise<Response> {
  const body = await answer.whole();
  const choices = choicesOf(body);
  if (choices.length !== call.request.n)
    throw badReply(choices.length === 0 ? 'has no choice' : `has ${choices.length} choices of ${call.request.n}`);
  const { wants } = call.request;
  const shown = hide(body, wants);
  const prompt = promptOf(body);
  call.firstTokenAt = new Date();
  call.result = () => ({
    prompt,
    choices: choices.map((choice) => ({
      ...sampledOf(choice),
      versions: versionsOf(choice),
      finishReason: typeof choice.finish_reason === 'string' ? choice.finish_reason : null,
    })),
    counted: completionCount(body.usage),
    // The ids have columns of their own.
    reply: wants.tokenIds ? hide(body, { ...wants, tokenIds: false }) : shown,
  });
  call.checkPrompt(prompt);
  await call.complete();
  return jsonReply(
    call.request.protocol.whole(shown, call.request, call.id),
    callHeaders(call.request.protocol, call.id),
  );
}
