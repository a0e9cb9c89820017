import { expect, test } from 'vitest';
import { readStream } from '../harness/gateways.ts';
import { useTokenGateways } from '../harness/token-gateway.ts';
import { misspell } from './toy-tokenizer.ts';

const context = useTokenGateways();

test.each(['chat', 'complete'] as const)(
  'the tests’ toy engine (TokenEngine) ends a reply at a stop string as vLLM does (%s)',
  async (how) => {
    await context.serve({ parses: false });
    const trial = await context.trial();
    const messages = [{ role: 'user', content: 'one' }];
    for (const stream of [false, true]) {
      const asked = how === 'chat' ? { messages } : { prompt: `text ${stream}` };
      for (const more of [
        [],
        [
          { role: 'assistant', content: 'two ' },
          { role: 'user', content: 'three' },
        ],
      ]) {
        context.toy.script = [{ text: 'two ends here' }];
        const reply = await trial[how]({
          ...asked,
          ...(how === 'chat' ? { messages: [...messages, ...more] } : {}),
          stream,
          stop: 'ends',
        });
        const choices = stream
          ? (await readStream(reply)).chunks.flatMap((chunk) => chunk.choices ?? [])
          : (await reply.json()).choices;
        const text = choices
          .map(
            (choice: { text?: string; message?: { content: string }; delta?: { content?: string } }) =>
              choice.text ?? choice.message?.content ?? choice.delta?.content ?? '',
          )
          .join('');
        expect([text, choices.at(-1).finish_reason, choices.at(-1).stop_reason]).toEqual(['two ', 'stop', 'ends']);
        expect(context.toy.generated.at(-1)?.completion).toEqual(misspell('two ends'));
      }
    }
    expect((await trial.calls()).filter(({ continuation }) => continuation === 'clean')).toHaveLength(
      how === 'chat' ? 2 : 0,
    );
  },
);
