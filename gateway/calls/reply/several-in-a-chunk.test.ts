import { expect, test } from 'vitest';
import { choicesOf } from '../../../store/calls/choices.ts';
import { readStream } from '../../../tests/support/harness/gateways.ts';
import { useTokenGateway } from '../../../tests/support/harness/token-gateway.ts';

const context = useTokenGateway();

test('when an engine’s chunks carry several replies, the agent gets the text of each in order, whichever ends first', async () => {
  Object.assign(context.toy, { parses: false, together: true });
  const trial = await context.trial();
  const texts = ['a', 'a much longer reply', 'in between'];
  context.toy.script = [{ text: 'hello' }, ...texts.map((text) => ({ text }))];
  const opening = [{ role: 'user', content: 'one' }];
  const [first] = choicesOf(await context.json(await trial.chat({ messages: opening })));
  const { chunks, done } = await readStream(
    await trial.chat({ messages: [...opening, first?.message, { role: 'user', content: 'two' }], n: 3, stream: true }),
  );
  const parts = chunks.flatMap(({ choices = [] }) => choices);
  const seen = texts.map((_, index) =>
    parts
      .filter((part) => part.index === index)
      .map(({ delta }) => delta?.content ?? '')
      .join(''),
  );
  expect([done, seen]).toEqual([true, texts]);
  expect(
    parts
      .filter(({ finish_reason }) => finish_reason === 'stop')
      .map(({ index }) => index)
      .toSorted(),
  ).toEqual([0, 1, 2]);
  const calls = (await trial.calls()).slice(1);
  expect(calls.map(({ completionTokenIds }) => [...(completionTokenIds ?? [])])).toEqual(
    context.toy.generated.slice(1).map(({ completion }) => completion),
  );
  expect(
    calls.flatMap(({ response }) => choicesOf(response)).map(({ index, message }) => [index, message]),
  ).toMatchObject(texts.map((content, index) => [index, { content }]));
});
