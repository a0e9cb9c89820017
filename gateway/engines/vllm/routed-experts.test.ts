import { eq } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { deleteTrials } from '../../../store/queries/delete-trials.ts';
import { blobs } from '../../../store/schema.ts';
import { npyOf } from '../../../tests/support/fakes/npy.ts';
import { useTokenGateways } from '../../../tests/support/harness/token-gateway.ts';

const context = useTokenGateways();
const ask = (content: string) => ({ role: 'user', content });
const experts = (id: number) => [id % 7, id % 5];
const session = z.object({
  turns: z.array(
    z.object({
      call_id: z.string(),
      routed_experts: z.object({ sha256: z.string(), form: z.string(), start: z.int(), bytes: z.int() }).nullable(),
    }),
  ),
});

/** Returns the experts that each turn of a trial names, and their bytes. */
async function keptOf(trialId: string) {
  const { turns } = session.parse(await (await context.admin('GET', `/sessions/${trialId}`)).json());
  return Promise.all(
    turns.map(async ({ routed_experts: named }) => {
      if (!named) return null;
      const reply = await context.admin('GET', `/sessions/${trialId}/blobs/${named.sha256}`);
      return { ...named, is: Buffer.from(await reply.arrayBuffer()) };
    }),
  );
}

const countOf = (trialId: string) => context.db.$count(blobs, eq(blobs.trialId, trialId));

/** Returns what is to be kept of the generated replies: each without the tokens that the one before has. */
function expected(continued: boolean) {
  const all = context.toy.generated.map(({ prompt, completion }) => [...prompt, ...completion]);
  return all.map((ids, i) => {
    const start = continued ? (all[i - 1]?.length ?? 1) - 1 : 0;
    return { form: 'npy', start, is: npyOf(ids.slice(start, -1).map(experts)) };
  });
}

test.each([
  { parses: false, stream: false },
  { parses: false, stream: true },
  { parses: true, stream: false },
  { parses: true, stream: true },
])(
  'the experts of each token are kept with its call, and a turn that continues has only those that are new: %j',
  async ({ parses, stream }) => {
    await context.serve({ parses, experts });
    const trial = await context.trial();
    context.toy.script = [{ text: 'hello' }, { text: 'bye' }];
    const opening = await trial.chat({ messages: [ask('one')], stream });
    const messages = [ask('one'), { role: 'assistant', content: 'hello' }, ask('two')];
    const shown = [await opening.text(), await (await trial.chat({ messages, stream })).text()];
    expect(shown.join()).not.toContain('routed_experts');
    expect((await trial.calls()).map(({ continuation }) => continuation)).toEqual([null, 'clean']);
    expect(await keptOf(trial.id)).toMatchObject(expected(true));
    expect((await trial.calls()).every(({ response }) => !JSON.stringify(response).includes('routed_experts'))).toBe(
      true,
    );
  },
);

test('a text completion’s experts are kept, of a continued text only the new ones', async () => {
  await context.serve({ experts });
  const trial = await context.trial();
  context.toy.script = [{ text: 'hello' }, { text: 'bye' }];
  await trial.complete({ prompt: 'one' });
  await trial.complete({ prompt: 'onehello, two', routed_experts_prompt_start: 1 });
  expect((await trial.calls()).map(({ continuation }) => continuation)).toEqual([null, 'clean']);
  expect(await keptOf(trial.id)).toMatchObject(expected(true));
});

test('an agent cannot have a part of the experts left out', async () => {
  await context.serve({ experts });
  const trial = await context.trial();
  await trial.chat({ messages: [ask('one')], routed_experts_prompt_start: 3 });
  expect(await keptOf(trial.id)).toMatchObject(expected(false));
});

test('several replies keep their own experts, and equal bytes are stored once', async () => {
  await context.serve({ experts });
  const trial = await context.trial();
  context.toy.script = [{ text: 'hello' }, { text: 'hello' }, { text: 'hello!' }];
  await trial.chat({ messages: [ask('one')], n: 3 });
  const kept = await keptOf(trial.id);
  expect(kept).toMatchObject(expected(false));
  expect(new Set(kept.map((each) => each?.sha256)).size).toBe(await countOf(trial.id));
});

test('experts count as bytes of the trial and not as tokens, and are deleted with it', async () => {
  await context.serve({ experts });
  const used = async (trialId: string) => {
    const { usage } = await (await context.admin('GET', `/sessions/${trialId}`)).json();
    return usage;
  };
  const trial = await context.trial();
  await trial.chat({ messages: [ask('one')] });
  const [kept] = await keptOf(trial.id);
  context.toy.experts = null;
  await context.restart();
  const other = await context.trial();
  await other.chat({ messages: [ask('one')] });
  const [withThem, without] = [await used(trial.id), await used(other.id)];
  expect(withThem.tokens).toBe(without.tokens);
  expect(withThem.bytes - without.bytes).toBe(kept?.bytes);
  await deleteTrials(context.db, [trial.id]);
  expect(await countOf(trial.id)).toBe(0);
});

test('experts that do not fit the trial’s budget of bytes refuse the call, as all that is stored does', async () => {
  await context.serve({ experts: () => Array.from({ length: 200 }, () => 1) });
  const trial = await context.trial({ budgets: { bytes: 20_000 } });
  const reply = await trial.chat({ messages: [ask('a question of more than one hundred tokens'.repeat(4))] });
  expect([reply.status, (await reply.json()).error.code]).toEqual([429, 'budget_exhausted']);
  expect(await countOf(trial.id)).toBe(0);
});

test.each(['0'.repeat(64), 'none', '../samples'])('unknown bytes of a session are not found: %s', async (sha256) => {
  await context.serve();
  const trial = await context.trial();
  const reply = await context.admin('GET', `/sessions/${trial.id}/blobs/${encodeURIComponent(sha256)}`);
  expect([reply.status, (await reply.json()).error.code]).toEqual([404, 'blob_not_found']);
});
