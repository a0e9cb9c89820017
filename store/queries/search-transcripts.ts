import { and, eq, inArray, sql, type SQL } from 'drizzle-orm';
import { messageTexts } from '../calls/message-texts.ts';
import type { Database } from '../database.ts';
import { calls, trials } from '../schema.ts';
import { excerptOf, type ExcerptPart } from './excerpt.ts';

export type TranscriptHit = {
  trialId: string;
  attempt: number;
  callId: string;
  /** The place of the call among those of its attempt, counted from 1. */
  number: number;
  /** The role of the message that matches. */
  role: string;
  excerpt: ExcerptPart[];
};
export type TranscriptSearch = {
  hits: TranscriptHit[];
  /** The number of calls that were searched. */
  searched: number;
  /** The last of them, after which a search goes on; null at the end of the run. */
  next: string | null;
};

/** The most that one search reads, and the most calls, their bytes and messages of each that it returns. */
const MOST = {
  trials: 500,
  calls: 5_000,
  bytes: 32 * 2 ** 20,
  formBytes: 8 * 2 ** 20,
  found: 50,
  foundBytes: 8 * 2 ** 20,
  ofCall: 5,
};

/** Names and values that nearly every stored call has around its texts. For words that occur in them, PostgreSQL takes them out first, which takes longer. */
const NAMES =
  'messages content role fields lists tools tool_calls tool_call_id function name arguments type text index choices message finish_reason reasoning_content logprobs usage prompt_tokens completion_tokens total_tokens model created object user assistant system developer stop length chat.completion stream';
/** What may be a part of a number or of a random id. */
const NUMBER = /^[\da-f.-]+$/i;
const FORM = String.raw`"(?:role|type|finish_reason|object|model|id|tool_call_id)":"[^"\\]*"|"[a-z_]{1,30}":(?:-?\d[\d.e+-]*)?`;
/** The characters of a term that PostgreSQL looks for. It does not end LIKE within a text, which a long term makes slow in a text that repeats its start. */
const LONGEST = 32;

type Match = { id: string; trialId: string; attempt: number; number: number; place: number; bytes: number };
type Page = { searched: number; last: string | null; isEnd: boolean; matches: Match[] };

/**
 * Searches what the calls of a run add to their conversations, the newest trials first, for messages that have all terms, in upper or lower
 * case. `after` is the call after which it goes on; null when the run does not have that call. PostgreSQL scans the stored texts, which have each
 * message of an attempt once: an index would cost every call that is recorded, and a tsvector refuses large texts. The messages of the calls that
 * it finds are then looked at one by one, because a stored text also has the names of fields.
 */
export async function searchTranscripts(
  db: Database,
  runId: string,
  { terms, after }: { terms: readonly string[]; after?: string },
): Promise<TranscriptSearch | null> {
  if (after !== undefined && !(await hasCall(db, runId, after))) return null;
  const { searched, last, isEnd, matches } = await readMatches(db, matchesQuery(runId, terms, after));
  let bytes = 0;
  const kept = matches.slice(0, MOST.found).filter((match, i) => (bytes += match.bytes) <= MOST.foundBytes || i === 0);
  const isCut = kept.length < matches.length;
  const texts = await db
    .select({ id: calls.id, request: calls.request, response: calls.response })
    .from(calls)
    .where(
      inArray(
        calls.id,
        kept.map(({ id }) => id),
      ),
    );
  const textOf = new Map(texts.map((text) => [text.id, text]));
  const hits = kept.flatMap(({ id, trialId, attempt, number }) => {
    const text = textOf.get(id);
    if (!text) return [];
    const found = messageTexts(text).flatMap(({ role, text: whole }) => {
      const excerpt = excerptOf(whole, terms);
      return excerpt ? [{ trialId, attempt, callId: id, number, role, excerpt }] : [];
    });
    return found.slice(0, MOST.ofCall);
  });
  const lastKept = kept.at(-1);
  return isCut && lastKept
    ? { hits, searched: lastKept.place, next: lastKept.id }
    : { hits, searched, next: isEnd ? null : last };
}

async function hasCall(db: Database, runId: string, callId: string): Promise<boolean> {
  const rows = await db
    .select({ id: calls.id })
    .from(calls)
    .innerJoin(trials, eq(trials.id, calls.trialId))
    .where(and(eq(calls.id, callId), eq(trials.runId, runId)));
  return rows.length > 0;
}

async function readMatches(db: Database, query: SQL): Promise<Page> {
  const { rows } = await db.execute<Page>(query);
  const [page] = rows;
  return page ?? { searched: 0, last: null, isEnd: true, matches: [] };
}

/** Asks which calls of a run have all terms. It reads their texts one by one and only up to the last match that it returns. */
export function matchesQuery(runId: string, terms: readonly string[], after?: string): SQL {
  const place = sql`(select t.created_at, t.id from ${calls} seen join ${trials} t on t.id = seen.trial_id where seen.id = ${after ?? null}::uuid)`;
  const seen = sql`(select seen.attempt, seen.seq from ${calls} seen where seen.id = ${after ?? null}::uuid)`;
  const isAfter =
    after === undefined ? sql`true` : sql`(s.created_at, s.id) <> ${place} or (c.attempt, c.seq) > ${seen}`;
  const isOfForm = terms.some((term) => NAMES.includes(term.toLowerCase()) || NUMBER.test(term));
  const whole = sql`lower((convert_from(texts.request, 'UTF8') || coalesce(convert_from(texts.response, 'UTF8'), '')) collate "C")`;
  const stored = isOfForm ? sql`regexp_replace(${whole}, ${FORM}, ' ', 'g')` : whole;
  const hasAll = sql.join(
    terms.map((term) => hasTerm(sql`c.stored`, term)),
    sql` and `,
  );
  return sql`
    with chosen as materialized (
      select t.id, t.created_at from ${trials} t
      where t.run_id = ${runId} and t.status <> 'deleted' and exists (select from ${calls} c where c.trial_id = t.id)
        ${after === undefined ? sql`` : sql`and (t.created_at, t.id) <= ${place}`}
      order by t.created_at desc, t.id desc limit ${MOST.trials}),
    placed as materialized (
      select own.*, row_number() over told as place, sum(own.bytes) over told - own.bytes as before
      from (
        select c.id, c.trial_id, c.attempt, c.seq, c.bytes, s.created_at
        from chosen s cross join lateral (
          select c.id, c.trial_id, c.attempt, c.seq, octet_length(c.request) + coalesce(octet_length(c.response), 0) as bytes
          from ${calls} c where c.trial_id = s.id and (${isAfter})
          order by c.attempt, c.seq limit ${MOST.calls + 1}) c
        order by s.created_at desc, s.id desc, c.attempt, c.seq limit ${MOST.calls + 1}) own
      window told as (order by own.created_at desc, own.trial_id desc, own.attempt, own.seq)),
    page as materialized (select * from placed where before < ${isOfForm ? MOST.formBytes : MOST.bytes} and place <= ${MOST.calls}),
    matching as materialized (
      select p.* from (select * from page order by place) p
        cross join lateral (select ${stored} as stored from ${calls} texts where texts.id = p.id offset 0) c
      where ${hasAll} order by p.place limit ${MOST.found + 1})
    select (select count(*)::int from page) as searched,
      (select id from page order by place desc limit 1) as last,
      (select count(*) from page) = (select count(*) from placed) and (select count(*) from chosen) < ${MOST.trials} as "isEnd",
      (select coalesce(json_agg(json_build_object('id', m.id, 'trialId', m.trial_id, 'attempt', m.attempt, 'place', m.place, 'bytes', m.bytes,
        'number', (select count(*) from ${calls} b where b.trial_id = m.trial_id and b.attempt = m.attempt and b.seq <= m.seq)
        ) order by m.place), '[]') from matching m) as matches`;
}

/**
 * Returns a condition that at least the stored texts with the term meet: JSON writes some characters in another way, and PostgreSQL turns only
 * letters of ASCII into lower case here.
 */
function hasTerm(stored: SQL, term: string): SQL {
  const start = [...term].slice(0, LONGEST).join('');
  const parts = start.split(/\s+/).map((part) => JSON.stringify(part.replace(/[A-Z]/g, lower)).slice(1, -1));
  if (![...start].some((character) => casesOf(character).length > 1))
    return sql`${stored} like ${`%${parts.map((part) => part.replace(/[\\%_]/g, String.raw`\$&`)).join('%')}%`}`;
  return sql`${stored} ~ ${parts.map(expressionOf).join('.*')}`;
}

const expressionOf = (part: string): string =>
  [...part]
    .map((character) => {
      const cases = casesOf(character);
      return cases.length > 1 ? `[${cases.join('')}]` : character.replace(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`);
    })
    .join('');

const lower = (text: string): string => text.toLowerCase();

/** Returns a character outside ASCII in lower and upper case, as far as each is one character. */
const casesOf = (character: string): string[] =>
  character <= '\u007f'
    ? [character]
    : [...new Set([character, lower(character), lower(character.toUpperCase()), character.toUpperCase()])].filter(
        (each) => [...each].length === 1,
      );
