import { expect, test } from 'vitest';
import { useToyGateway } from '../../tests/support/harness/token-gateway.ts';
import { readStream } from '../../tests/support/harness/gateways.ts';

const gateway = useToyGateway();
const USER = { role: 'user', content: 'x' };

test.each([false, true])(
  'a chat that asks for more tokens than the context has gets as many as fit, in every turn (stream: %s)',
  async (stream) => {
    const trial = await gateway.trial();
    const many = { stream, max_tokens: 1_000_000_000 };
    gateway.toy.script = [{ text: 'one' }, { text: 'two' }];
    const first = await trial.chat({ ...many, messages: [USER] });
    expect(first.status, await first.clone().text()).toBe(200);
    await first.text();
    const second = await trial.chat({ ...many, messages: [USER, { role: 'assistant', content: 'one' }, USER] });
    expect(second.status, await second.clone().text()).toBe(200);
    await second.text();
    expect((await trial.calls()).map(({ continuation, untrainable }) => [continuation, untrainable])).toEqual([
      [null, null],
      ['clean', null],
    ]);
  },
);

test.each([true, false])(
  'an agent that asks for the counts with each chunk gets them in every turn (an engine that parses: %s)',
  async (parses) => {
    gateway.toy.parses = parses;
    gateway.toy.script = [{ text: 'one' }, { text: 'two' }];
    const trial = await gateway.trial();
    const stream_options = { include_usage: true, continuous_usage_stats: true };
    const messages: unknown[] = [USER];
    for (const said of ['one', 'two']) {
      const { chunks, done } = await readStream(await trial.chat({ messages, stream: true, stream_options }));
      expect(done).toBe(true);
      expect(chunks.every(({ usage }) => usage !== undefined && usage !== null)).toBe(true);
      messages.push({ role: 'assistant', content: said }, USER);
    }
    expect((await trial.calls()).map(({ continuation }) => continuation)).toEqual([null, 'clean']);
  },
);
