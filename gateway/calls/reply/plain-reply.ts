import { badReply } from '../../engines/engine-failed.ts';
import { jsonReply } from '../../reply-formats.ts';
import { callHeaders } from '../../request-id.ts';
import type { Call } from '../call.ts';
import { checkPrompt } from '../budgets/check-prompt.ts';
import type { Generation, Progress } from '../generate.ts';
import type { Recording } from '../record.ts';
import { replyOfFailure } from './reply-of-failure.ts';

/** Reads the reply whole, commits it, and only then sends it. */
export async function plainReply(call: Call, generation: Generation, recording: Recording): Promise<Response> {
  const { protocol, n } = call.request;
  let whole: Progress | null = null;
  try {
    const { result, shown } = await (await generation.answer).whole();
    const { choices, prompt } = result;
    if (choices.length !== n)
      throw badReply(choices.length === 0 ? 'has no choice' : `has ${choices.length} choices of ${n}`);
    whole = { ...generation.progress, result, firstTokenAt: new Date() };
    checkPrompt(call.trial, prompt);
    await recording.complete(whole);
    return jsonReply(protocol.whole(shown, call.request, call.id), callHeaders(protocol, call.id));
  } catch (error) {
    return replyOfFailure(call, recording, error, whole ?? generation.progress);
  }
}
