import { expect, test } from 'vitest';
import type { KeepThinking } from '../../core/sampling-choices.ts';
import { decode } from '../../tests/support/fakes/toy-tokenizer.ts';
import { calling } from '../../tests/support/harness/calling.ts';
import { useToyGateway } from '../../tests/support/harness/token-gateway.ts';

const gateway = useToyGateway();
const tools = [{ type: 'function', function: { name: 'ls', parameters: { type: 'object', properties: {} } } }];
const thought = (text: string) => `<think>${text}</think>`;
const CONTINUED = { as_template: ['clean', 'drifted'], always: ['clean', 'clean'], never: ['drifted', 'drifted'] };
/** Which thinking is in the prompt after a tool's result, and which after the user's next message. */
const SHOWN: Record<KeepThinking, [string[], string[]]> = {
  as_template: [['PLAN'], []],
  always: [['PLAN'], ['PLAN', 'CHECK']],
  never: [[], []],
};

type Client = { keep: KeepThinking; echoes: boolean; isDefault?: boolean };
const CLIENTS: Client[] = (['as_template', 'always', 'never'] as const).flatMap((keep) =>
  [true, false].map((echoes) => ({ keep, echoes })),
);

test.each([...CLIENTS, { keep: 'as_template', echoes: false, isDefault: true } satisfies Client])(
  'earlier thinking is in a prompt as the setting says ($keep, by default: $isDefault), whether or not the client sends it back ($echoes)',
  async ({ keep, echoes, isDefault = false }) => {
    const trial = await gateway.trial(isDefault ? {} : { sampling: { temperature: 1, keep_thinking: keep } });
    gateway.toy.script = [
      { text: thought('PLAN') + calling({ name: 'ls', arguments: {} }) },
      { text: `${thought('CHECK')}done` },
      { text: 'bye' },
    ];
    const messages: unknown[] = [{ role: 'user', content: 'look' }];
    const say = async () => {
      const { choices } = await (await trial.chat({ messages, tools })).json();
      const { reasoning, ...rest } = choices[0].message;
      messages.push(echoes ? { ...rest, reasoning } : rest);
      return choices[0].message;
    };
    const { reasoning, tool_calls: calls } = await say();
    expect(reasoning).toBe('PLAN');
    messages.push({ role: 'tool', tool_call_id: calls[0].id, content: 'a.txt' });
    await say();
    messages.push({ role: 'user', content: 'next' });
    await say();
    const prompts = gateway.toy.generated.map(({ prompt }) => decode(prompt));
    expect(prompts.slice(1).map((prompt) => ['PLAN', 'CHECK'].filter((word) => prompt.includes(word)))).toEqual(
      SHOWN[keep],
    );
    const recorded = await trial.calls();
    expect(recorded.map(({ continuation }) => continuation)).toEqual([null, ...CONTINUED[keep]]);
    expect(recorded.map(({ untrainable }) => untrainable)).toEqual([null, null, null]);
  },
);

test('a model that has not thought goes on by its ids, whatever the setting', async () => {
  const trial = await gateway.trial({ sampling: { temperature: 1, keep_thinking: 'never' } });
  gateway.toy.script = [{ text: 'one' }, { text: 'two' }];
  const user = { role: 'user', content: 'x' };
  const { choices } = await (await trial.chat({ messages: [user] })).json();
  await trial.chat({ messages: [user, choices[0].message, user] });
  expect((await trial.calls()).map(({ continuation }) => continuation)).toEqual([null, 'clean']);
});
