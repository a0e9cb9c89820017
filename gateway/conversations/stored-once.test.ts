import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { useToyGateway } from '../../tests/support/harness/token-gateway.ts';

const context = useToyGateway();
const TURNS = 20;
const stored = z.object({ ids: z.coerce.number(), texts: z.coerce.number() });

test('the store keeps of each turn only what its conversation did not have before', async () => {
  const trial = await context.trial();
  const messages: { role: string; content: string }[] = [];
  for (let turn = 0; turn < TURNS; turn++) {
    messages.push({ role: 'user', content: `question ${turn}: ${'why '.repeat(60)}` });
    context.toy.script = [{ text: `answer ${turn}: ${'because '.repeat(40)}` }];
    const reply = await (await trial.chat({ messages })).json();
    messages.push({ role: 'assistant', content: reply.choices[0].message.content });
  }
  const { rows } = await context.db.execute(sql`
    select sum(octet_length(prompt_token_ids)) as ids, sum(octet_length(request) + octet_length(response)) as texts
    from calls where trial_id = ${trial.id}`);
  const [found] = z.array(stored).parse(rows);
  const distinct = messages.reduce((sum, { content }) => sum + Buffer.byteLength(content), 0);
  const last = context.toy.generated.at(-1);
  expect(found?.ids).toBeLessThanOrEqual(4 * (last?.prompt.length ?? 0));
  expect(found?.texts).toBeLessThan(2 * distinct);
  // Reading the calls gives whole requests again.
  const calls = await trial.calls();
  expect(calls.at(-1)?.promptTokenIds).toEqual(Int32Array.from(last?.prompt ?? []));
  expect(calls.at(-1)?.request.messages).toEqual(messages.slice(0, -1));
});
