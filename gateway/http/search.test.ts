import { eq, sql } from 'drizzle-orm';
import { beforeAll, expect, test } from 'vitest';
import { isObject } from '../../core/json.ts';
import { contentOf } from '../../store/calls/content.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { matchesQuery } from '../../store/queries/search-transcripts.ts';
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

/** Records a trial with as many calls, whose users say these texts. */
async function sayAll(trialId: string, runId: string, texts: readonly string[]): Promise<void> {
  await openAttempt(gateway.db, { trialId, attempt: 1, runId });
  for (let from = 0; from < texts.length; from += 200)
    await recordCalls(
      gateway.db,
      texts
        .slice(from, from + 200)
        .map((content) => callRecord({ trialId, request: { messages: [{ role: 'user', content }] } })),
    );
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
  for (const word of ['messages', 'tool_calls', 'assistant', 'choices']) expect((await search(word)).hits).toEqual([]);
  await say('names', 'the role of {"content": 1} in messages');
  for (const word of ['content', 'role', 'messages'])
    expect(marksOf(await search(word))).toEqual([['names', 1, 'user', [word]]]);
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

test('a search in a database with other runs reads only texts of its run, and only up to the last match that it returns', async () => {
  await gateway.db.insert(runs).values([
    { id: 'small', config: {} },
    { id: 'big', config: {} },
  ]);
  for (const trial of ['b1', 'b2', 'b3', 'b4'])
    await sayAll(
      trial,
      'big',
      Array.from({ length: 1_000 }, (_, i) => `needle ${i}`),
    );
  await sayAll(
    's1',
    'small',
    Array.from({ length: 120 }, (_, i) => `needle ${i}`),
  );
  await gateway.db.execute(sql`analyze`);
  const { rows } = await gateway.db.execute<{ 'QUERY PLAN': unknown }>(
    sql`explain (analyze, format json) ${matchesQuery('small', ['needle'])}`,
  );
  const scans = scansOf(rows[0]?.['QUERY PLAN']);
  expect(scans.filter(({ alias }) => alias === 'texts')).toMatchObject([{ kind: 'Index Scan', loops: 51 }]);
  expect(scans.filter(({ kind }) => kind === 'Seq Scan')).toEqual([]);
});

test('letters of other alphabets and short numbers are searched exactly, so that no page is full of calls without a hit', async () => {
  await gateway.db.insert(runs).values({ id: 'exact', config: {} });
  const other = Array.from({ length: 60 }, (_, i) => `Работа ${i}, ΕΡΓΑΣΊΑ`);
  await openAttempt(gateway.db, { trialId: 'exact', attempt: 1, runId: 'exact' });
  const reply = { id: 'chatcmpl-1764', created: 1_764_000_000, usage: { total_tokens: 1764 }, choices: [] };
  await recordCalls(
    gateway.db,
    [...other, 'СБОЙ в 1764, İzmir'].map((content) =>
      callRecord({ trialId: 'exact', request: { messages: [{ role: 'user', content }] }, response: reply }),
    ),
  );
  for (const [word, mark] of [
    ['сбой', 'СБОЙ'],
    ['1764', '1764'],
    ['İzmir', 'İzmir'],
  ] as const) {
    const found: SearchResult = await (
      await gateway.admin('GET', `/runs/exact/search?q=${encodeURIComponent(word)}`)
    ).json();
    expect([marksOf(found), found.next_after]).toEqual([[['exact', 61, 'user', [mark]]], null]);
  }
});

test('refusals, old calls of functions, and all that a model reasoned are found', async () => {
  await say('kinds', 'ask', {
    response: {
      choices: [
        {
          message: {
            role: 'assistant',
            content: [{ type: 'refusal', refusal: 'partly unwilling' }],
            refusal: 'wholly unwilling',
            reasoning: 'second thought',
            reasoning_content: 'first thought',
            function_call: { name: 'oldest', arguments: '{}' },
          },
        },
      ],
    },
  });
  for (const words of ['"partly unwilling"', '"wholly unwilling"', '"first thought"', '"second thought"', 'oldest'])
    expect([words, marksOf(await search(words)).length]).toEqual([words, 1]);
});

test('a search stops at 8 MiB of found texts, at 32 MiB of searched ones and at 500 trials, and goes on behind them', async () => {
  await gateway.db.insert(runs).values([
    { id: 'heavy', config: {} },
    { id: 'wide', config: {} },
  ]);
  // PostgreSQL compresses them, so that the test writes little.
  await sayAll(
    'h1',
    'heavy',
    Array.from({ length: 9 }, (_, i) => `${'filling '.repeat(600_000)}needle ${i}`),
  );
  const pagesOf = async (runId: string, word: string) => {
    const pages: [hits: number, searched: number][] = [];
    for (let after: string | null = ''; after !== null && pages.length < 20;) {
      const path = `/runs/${runId}/search?q=${word}${after === '' ? '' : `&after=${after}`}`;
      const page: SearchResult = await (await gateway.admin('GET', path)).json();
      pages.push([page.hits.length, page.searched]);
      after = page.next_after;
    }
    return pages;
  };
  expect(await pagesOf('heavy', 'needle')).toEqual(Array.from({ length: 9 }, () => [1, 1]));
  expect(await pagesOf('heavy', 'absent')).toEqual([
    [0, 7],
    [0, 2],
  ]);
  const texts = Array.from({ length: 501 }, (_, i) => `w${i}`);
  await openAttempt(gateway.db, { trialId: texts[0] ?? '', attempt: 1, runId: 'wide' });
  await gateway.db.insert(trials).values(texts.slice(1).map((id) => ({ id, runId: 'wide' })));
  await recordCalls(
    gateway.db,
    texts.map((trialId) =>
      callRecord({ trialId, attempt: 1, request: { messages: [{ role: 'user', content: 'x' }] } }),
    ),
  );
  expect(await pagesOf('wide', 'absent')).toEqual([
    [0, 500],
    [0, 1],
  ]);
});

test('a search that goes on after a call that the run does not have is refused, and not answered as if it were at its end', async () => {
  await say('other-run', 'text', { trialId: 'other-run' });
  await gateway.db.update(trials).set({ runId: 'other' }).where(eq(trials.id, 'other-run'));
  const [foreign] = await gateway.db.select({ id: calls.id }).from(calls).where(eq(calls.trialId, 'other-run'));
  for (const after of [foreign?.id, crypto.randomUUID()]) {
    const reply = await gateway.admin('GET', `/runs/run/search?q=a&after=${after}`);
    expect([reply.status, await reply.text()]).toEqual([404, expect.stringContaining('Begin the search again')]);
  }
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

type Scan = { kind: unknown; alias: unknown; loops: unknown };
/** Returns the scans of the table of calls in a plan. */
const scansOf = (plan: unknown): Scan[] => {
  if (Array.isArray(plan)) return plan.flatMap(scansOf);
  if (!isObject(plan)) return [];
  const own = { kind: plan['Node Type'], alias: plan['Alias'], loops: plan['Actual Loops'] };
  return [...(plan['Relation Name'] === 'calls' ? [own] : []), ...Object.values(plan).flatMap(scansOf)];
};
