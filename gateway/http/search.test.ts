import { eq } from 'drizzle-orm';
import { beforeAll, expect, test } from 'vitest';
import { contentOf } from '../../store/calls/content.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { calls, runs, trials } from '../../store/schema.ts';
import { useSharedGateway } from '../../tests/support/harness/gateways.ts';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import { recordConversation } from '../../tests/support/scenarios/recorded-run.ts';
import { searchResult, type SearchResult } from './openapi/run-schemas.ts';

const gateway = useSharedGateway();
const HTML = '<img src=x onerror="window.ran=1"><script>alert(1)</script>';
const TEXTS = {
  system: 'Be brief.',
  user: 'Repair Größe.',
  reply: 'I look.',
  name: 'read',
  tool: 'a.py',
  output: 'x = 1',
};

const search = async (q: string, more = ''): Promise<SearchResult> => {
  const reply = await gateway.admin('GET', `/runs/run/search?q=${encodeURIComponent(q)}${more}`);
  return reply.json();
};
const marksOf = ({ hits }: SearchResult) =>
  hits.map(({ trial_id: trial, number, role, excerpt }) => [
    trial,
    number,
    role,
    excerpt.flatMap(({ text, is_match: isMatch }) => (isMatch ? [text] : [])),
  ]);

/** Records a trial with one call, whose user says the text. */
async function say(trialId: string, content: unknown, values = {}): Promise<void> {
  await openAttempt(gateway.db, { trialId, attempt: 1, runId: 'run' });
  await recordCalls(gateway.db, [
    callRecord({ trialId, request: { messages: [{ role: 'user', content }] }, ...values }),
  ]);
}

beforeAll(async () => {
  await gateway.db.insert(runs).values({ id: 'run', config: {} });
  await recordConversation(gateway.db, { trialId: 'talk', place: { runId: 'run' } }, TEXTS, 0.5);
  await say('hostile', `${HTML} nul\u0000 half\ud800 100%_sure C:\\dir "quoted" end\nof line`);
});

test('a message is found once, by all words of a search in upper or lower case, and its matches are marked', async () => {
  const found = await search('REPAIR größe');
  expect(searchResult.parse(found)).toEqual(found);
  expect(marksOf(found)).toEqual([['talk', 1, 'user', ['Repair', 'Größe']]]);
  expect(found).toMatchObject({ searched: 3, next_after: null, run_status: 'running' });
  expect(found.hits[0]?.excerpt).toEqual([
    { text: 'Repair', is_match: true },
    { text: ' ', is_match: false },
    { text: 'Größe', is_match: true },
    { text: '.', is_match: false },
  ]);
  expect(marksOf(await search('a.py'))).toContainEqual(['talk', 1, 'assistant', ['a.py']]);
  expect(marksOf(await search('"x = 1"'))).toEqual([['talk', 2, 'tool', ['x = 1']]]);
  // The words of one message, and not of a whole call.
  expect((await search('brief repair')).hits).toEqual([]);
});

test('a message that an agent sends again and again is found once, at the call that brought it', async () => {
  await openAttempt(gateway.db, { trialId: 'again', attempt: 1, runId: 'run' });
  const message = { role: 'user', content: 'sent twice' };
  const known = new Set([contentOf(message).digest]);
  const later = { messages: [message, { role: 'user', content: 'something else' }] };
  await recordCalls(gateway.db, [
    callRecord({ trialId: 'again', request: { messages: [message] } }),
    callRecord({ trialId: 'again', request: later, known }),
  ]);
  expect(marksOf(await search('"sent twice"'))).toEqual([['again', 1, 'user', ['sent twice']]]);
});

test('names of fields and of tools’ parameters are not found, nor anything of a deleted session or another run', async () => {
  for (const word of ['messages', 'tool_calls', 'is_match', 'choices']) expect((await search(word)).hits).toEqual([]);
  await say('gone', 'only here');
  await say('elsewhere', 'only here');
  await gateway.db.update(trials).set({ status: 'deleted' }).where(eq(trials.id, 'gone'));
  await gateway.db.update(trials).set({ runId: 'other' }).where(eq(trials.id, 'elsewhere'));
  expect((await search('only here')).hits).toEqual([]);
});

test('markup, NUL, half a surrogate pair, signs of patterns and ends of lines are searched and returned as text', async () => {
  for (const q of ['onerror="window', '<script>alert(1)', '100%_sure', 'C:\\dir', 'quoted', '"END of line"'])
    expect([q, marksOf(await search(q)).length]).toEqual([q, 1]);
  expect((await search('100_sure')).hits).toEqual([]);
  const [hit] = (await search('nul')).hits;
  expect(hit?.excerpt.map(({ text }) => text).join('')).toContain('nul\u0000 half\ufffd 100%_sure');
});

test('a message of 10 MB is searched to its end, and only an excerpt of it is returned', async () => {
  await say('large', `${'many different words\n'.repeat(500_000)}needle at the end`);
  const found = await search('needle');
  expect(marksOf(found)).toEqual([['large', 1, 'user', ['needle']]]);
  expect(JSON.stringify(found).length).toBeLessThan(2_000);
  await gateway.db.delete(calls).where(eq(calls.trialId, 'large'));
});

test('a search of many calls goes on page by page and finds each hit once, the newest trials first', async () => {
  for (const trialId of ['first', 'second']) {
    await openAttempt(gateway.db, { trialId, attempt: 1, runId: 'run' });
    await recordCalls(
      gateway.db,
      Array.from({ length: 40 }, (_, i) =>
        callRecord({ trialId, request: { messages: [{ role: 'user', content: `number ${i}` }] } }),
      ),
    );
  }
  const seen: string[] = [];
  let pages = 0;
  for (let after: string | null = ''; after !== null; pages++) {
    const page: SearchResult = await search('number', after === '' ? '' : `&after=${after}`);
    seen.push(...page.hits.map(({ trial_id: trial, number }) => `${trial} ${number}`));
    after = page.next_after;
  }
  const all = ['second', 'first'].flatMap((trial) => Array.from({ length: 40 }, (_, i) => `${trial} ${i + 1}`));
  expect([pages, seen]).toEqual([2, all]);
});

test('a search without a word, with NUL, with too much, or with a wrong place is refused', async () => {
  const nine = Array.from({ length: 9 }, (_, i) => i).join(' ');
  for (const bad of ['', ' " "', 'a\0b', 'x'.repeat(201), nine])
    expect([bad, (await gateway.admin('GET', `/runs/run/search?q=${encodeURIComponent(bad)}`)).status]).toEqual([
      bad,
      400,
    ]);
  expect((await gateway.admin('GET', '/runs/run/search')).status).toBe(400);
  expect((await gateway.admin('GET', '/runs/run/search?q=a&after=x')).status).toBe(400);
  expect((await gateway.admin('GET', '/runs/none/search?q=a')).status).toBe(404);
});
