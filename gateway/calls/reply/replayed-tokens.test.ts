import { expect, test } from 'vitest';
import { isObject, type JsonObject } from '../../json.ts';
import { choicesOf } from '../../../store/calls/choices.ts';
import { readStream } from '../../../tests/support/harness/gateways.ts';
import { pretendCut } from '../../../tests/support/fakes/lost-replies.ts';
import { useSharedToyGateway } from '../../../tests/support/harness/token-gateway.ts';

const context = useSharedToyGateway();
const WANTS = { logprobs: true, return_token_ids: true, n: 2 };

/** Returns everything that an agent got of each choice, however it was divided. */
async function got(reply: Response, stream: boolean) {
  const parts: JsonObject[] = stream ? (await readStream(reply)).chunks : [await context.json(reply)];
  const prompt = parts
    .flatMap((part) => [part.prompt_token_ids, ...choicesOf(part).map((choice) => choice.prompt_token_ids)])
    .filter((ids) => Array.isArray(ids));
  const choices = [0, 1].map((index) => {
    const own = parts.flatMap(choicesOf).filter((choice) => choice.index === index);
    const lists = own.flatMap(({ logprobs }) =>
      isObject(logprobs) ? [logprobs.content ?? logprobs.token_logprobs] : [],
    );
    const said = own.map(
      ({ text, message, delta }) => text ?? (isObject(message) ? message : isObject(delta) ? delta : {}).content ?? '',
    );
    return {
      said: said.join(''),
      logprobs: lists.flat(),
      ids: own.flatMap(({ token_ids }) => token_ids ?? []),
      finish: own.at(-1)?.finish_reason,
    };
  });
  return { prompt: prompt[0], choices };
}

const cases = ['chat', 'complete'].flatMap((route) =>
  [true, false].flatMap((stream) => [true, false].map((parses) => ({ route, stream, parses }))),
);

test.each(cases)(
  'a replayed reply has the log-probabilities and ids of the first reply ($route, stream: $stream, engine parses tool calls: $parses)',
  async ({ route, stream, parses }) => {
    context.toy.parses = parses;
    const trial = await context.trial();
    context.toy.script = [{ text: 'hello' }, { text: 'one' }, { text: 'the other', ends: false }];
    const opening = { messages: [{ role: 'user', content: 'a' }] };
    const {
      choices: [first],
    } = (await context.json(await (route === 'chat' ? trial.chat(opening) : trial.complete({ prompt: 'a' })))) as {
      choices: [{ message: JsonObject; text: string }];
    };
    const body =
      route === 'chat'
        ? { messages: [...opening.messages, first.message, { role: 'user', content: 'b' }] }
        : { prompt: `a${first.text} b` };
    const ask = (headers: Record<string, string>) =>
      trial[route === 'chat' ? 'chat' : 'complete'](
        { ...body, ...WANTS, stream },
        { headers: { authorization: `Bearer ${trial.key}`, 'content-type': 'application/json', ...headers } },
      );
    const delivered = await ask({ 'x-stainless-retry-count': '0' });
    const before = await got(delivered, stream);
    await pretendCut(context.db, delivered.headers.get('x-trialgate-call'));
    const replayed = await ask({ 'x-stainless-retry-count': '1' });
    expect(replayed.headers.get('x-trialgate-replay')).toBe('true');
    expect(await got(replayed, stream)).toEqual(before);
    const generated = context.toy.generated.slice(-2);
    expect(before).toMatchObject({
      prompt: generated[0]?.prompt,
      choices: generated.map(({ completion }) => ({ ids: completion })),
    });
    expect(before.choices.map(({ logprobs }) => logprobs.length)).toEqual(
      generated.map(({ completion }) => completion.length),
    );
    // Ids have columns of their own and are not stored with the reply again.
    const responses = (await trial.calls()).map(({ response }) => JSON.stringify(response));
    expect(responses.join()).not.toContain('token_ids');
  },
);
