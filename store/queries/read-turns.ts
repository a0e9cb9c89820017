import { and, asc, count, desc, eq, inArray, lt, lte, sql } from 'drizzle-orm';
import { isObject, type JsonObject } from '../../core/json.ts';
import { choicesOf } from '../calls/choices.ts';
import { contentOf, withEmptyFields } from '../calls/content.ts';
import { repliesOf } from '../calls/outline.ts';
import { parseStored } from '../calls/restore.ts';
import { shortRequest, type ShortRequest, type StoredContent } from '../calls/shorten.ts';
import type { Database } from '../database.ts';
import { attempts, calls } from '../schema.ts';

type At = { trialId: string; attempt: number };
type CallRow = typeof calls.$inferSelect;

/** The start that a call shares with an earlier call that it does not continue: a number of messages, or of characters of a text completion. */
export type SharedStart = { number: number; messages: number; characters: number };

/** A call with what it adds to the conversation of an earlier one. */
export type ShownCall = Pick<
  CallRow,
  | 'id'
  | 'status'
  | 'httpStatus'
  | 'reason'
  | 'untrainable'
  | 'sampling'
  | 'continuation'
  | 'finishReason'
  | 'policyVersion'
  | 'protocol'
  | 'startedAt'
  | 'firstTokenAt'
  | 'endedAt'
> & {
  /** Its place among the calls of its attempt, counted from 1. */
  number: number;
  promptTokens: number | null;
  completionTokens: number | null;
  /** The number of the call that it continues; null: it begins a conversation, or begins one again. */
  continues: number | null;
  shares: SharedStart | null;
  /** The messages of its request after those of the call that it continues or shares its start with. Null is one that could not be found within the bounds. */
  messages: unknown[];
  /** The call whose first tools its request has too, and how many; null: all of its tools are in `tools`. */
  sharesTools: { number: number; tools: number } | null;
  /** The tools of its request after those; null: it brings none. */
  tools: unknown[] | null;
  reply: unknown;
};

/** The most stored bytes of one page. A page has at least one call, whatever its size. */
const MOST_PAGE_BYTES = 8 * 2 ** 20;
/** The most stored bytes of earlier calls that are searched for messages which a page refers to. */
const MOST_SEARCHED_BYTES = 64 * 2 ** 20;
const SEARCHED_AT_ONCE = 100;

/**
 * Returns calls of an attempt from the one after number `after` on, in the order of their commits, each with what is new in it. A stored
 * request has only what its base does not have, so the calls before the page are not restored: of them it reads the bases, and those that
 * have a message which an agent sends a second time.
 */
export async function readTurns(
  db: Database,
  at: At,
  { after, limit }: { after: number; limit: number },
): Promise<{ turns: ShownCall[]; next: number | null }> {
  const found = await db
    .select({
      id: calls.id,
      seq: calls.seq,
      baseId: calls.baseId,
      parentId: calls.parentId,
      choiceOf: calls.choiceOf,
      status: calls.status,
      httpStatus: calls.httpStatus,
      reason: calls.reason,
      untrainable: calls.untrainable,
      sampling: calls.sampling,
      continuation: calls.continuation,
      finishReason: calls.finishReason,
      policyVersion: calls.policyVersion,
      protocol: calls.protocol,
      startedAt: calls.startedAt,
      firstTokenAt: calls.firstTokenAt,
      endedAt: calls.endedAt,
      promptTokens: sql<number | null>`${calls.sharedIds} + octet_length(${calls.promptTokenIds}) / 4`,
      completionTokens: sql<number | null>`octet_length(${calls.completionTokenIds}) / 4`,
      bytes: BYTES,
    })
    .from(calls)
    .where(ofAttempt(at))
    .orderBy(asc(calls.seq))
    .offset(after)
    .limit(limit + 1);
  const page = withinBytes(found.slice(0, limit), MOST_PAGE_BYTES);
  const texts = await readTexts(
    db,
    page.map(({ id }) => id),
  );
  const outside = await readBases(db, at, page);
  const stored = page.flatMap(({ bytes: _bytes, ...row }, i) => {
    const text = texts.get(row.id);
    return text ? [{ ...row, ...text, number: after + i + 1 }] : [];
  });
  const earlier = new Map<string, Base>([...outside, ...stored.map((row) => [row.id, baseOf(row)] as const)]);
  const drafts = stored.map((row) => ({ row, ...addedBy(row, earlier.get(row.baseId ?? '')) }));
  const contents = new Map<string, unknown>([[EMPTY_FIELDS.digest, EMPTY_FIELDS.core]]);
  for (const { short, response } of stored) learn(contents, short, response);
  const wanted = new Set<string>();
  for (const { items, tools } of drafts)
    for (const { as } of [...items, ...tools]) if (as !== undefined && !contents.has(as)) wanted.add(as);
  const [first] = stored;
  if (first) await findContents(db, { at, before: first.seq }, { wanted, contents });
  const valueOf = ({ is, as, and: empty }: StoredContent): unknown =>
    as === undefined || contents.has(as) ? withEmptyFields(as === undefined ? is : contents.get(as), empty) : null;
  const turns = drafts.map(({ row, items, tools, prompt, ...place }) => {
    const { seq: _seq, baseId: _base, parentId: _parent, choiceOf: _choice, short, response, ...shown } = row;
    const asked = short.lists.messages ? items.map(valueOf) : messagesIn(items.map(valueOf));
    return {
      ...shown,
      ...place,
      messages: prompt ? [{ role: 'user', content: prompt }] : asked,
      tools: tools.length > 0 ? tools.map(valueOf) : null,
      reply: replyOf(response),
    };
  });
  return { turns, next: found.length > page.length ? after + page.length : null };
}

/** Returns the attempts of a trial in their order. */
export const readAttempts = (db: Database, trialId: string): Promise<(typeof attempts.$inferSelect)[]> =>
  db.select().from(attempts).where(eq(attempts.trialId, trialId)).orderBy(asc(attempts.attempt));

const ofAttempt = ({ trialId, attempt }: At) => and(eq(calls.trialId, trialId), eq(calls.attempt, attempt));

/** PostgreSQL knows the length of a value without loading it. */
const BYTES = sql<number>`octet_length(${calls.request}) + coalesce(octet_length(${calls.response}), 0)`;

/** Returns the first rows that together are not larger than `most`, at least one. */
function withinBytes<R extends { bytes: number }>(rows: readonly R[], most: number): R[] {
  let sum = 0;
  return rows.filter(({ bytes }, i) => (sum += bytes) <= most || i === 0);
}

type StoredTexts = { short: ShortRequest; response: JsonObject | null };

async function readTexts(db: Database, ids: readonly string[]): Promise<Map<string, StoredTexts>> {
  if (ids.length === 0) return new Map();
  const rows = await db
    .select({ id: calls.id, request: calls.request, response: calls.response })
    .from(calls)
    .where(inArray(calls.id, [...ids]));
  return new Map(
    rows.map(({ id, request, response }) => [
      id,
      { short: shortRequest.parse(parseStored(request)), response: response && parseStored(response) },
    ]),
  );
}

/** The facts that a call needs about its base, the call after which it is stored. */
type Base = { number: number; messages: number; reply: string | null };

function baseOf({ number, short: { lists }, response }: StoredTexts & { number: number }): Base {
  const [shared, rest] = lists.messages ?? [0, []];
  return { number, messages: shared + rest.length, reply: repliesOf(response)[0]?.digest ?? null };
}

/** Reads those bases of a page's calls that are before the page: one after the other, because each may be large. */
async function readBases(
  db: Database,
  at: At,
  page: readonly { id: string; baseId: string | null }[],
): Promise<Map<string, Base>> {
  const own = new Set(page.map(({ id }) => id));
  const ids = new Set(page.flatMap(({ baseId }) => (baseId === null || own.has(baseId) ? [] : [baseId])));
  const bases = new Map<string, Base>();
  for (const id of ids) {
    const text = (await readTexts(db, [id])).get(id);
    const seq = sql`(select base.seq from ${calls} base where base.id = ${id})`;
    const [place] = await db
      .select({ number: count() })
      .from(calls)
      .where(and(ofAttempt(at), lte(calls.seq, seq)));
    if (text && place) bases.set(id, baseOf({ ...text, number: place.number }));
  }
  return bases;
}

type Added = Pick<ShownCall, 'continues' | 'shares' | 'sharesTools'> & {
  items: StoredContent[];
  tools: StoredContent[];
  /** The new part of a text completion's prompt. */
  prompt: string | null;
};
type StoredRow = StoredTexts & Pick<CallRow, 'baseId' | 'parentId' | 'choiceOf' | 'continuation'>;

/** Tells what a call adds, and to what. Its base is only where its row begins: any call before it may be that, also one of another conversation. */
function addedBy({ short, baseId, parentId, choiceOf, continuation }: StoredRow, base: Base | undefined): Added {
  const { lists, prompt } = short;
  const [messages, rest] = lists.messages ?? [0, prompt ? [] : [short.fields]];
  const [kept, tools] = lists.tools ?? [0, []];
  const sharesTools = base !== undefined && kept > 0 ? { number: base.number, tools: kept } : null;
  const [characters, text] = prompt ?? [0, null];
  const isOfParent = base !== undefined && choiceOf === null && parentId !== null && parentId === baseId;
  // Calls without prompt ids have no `continuation`. Their messages show whether they go on.
  const goesOn = isOfParent && continuation !== 'branched' && (continuation !== null || messages >= base.messages);
  if (!goesOn) {
    const isShared = base !== undefined && (messages > 0 || characters > 0);
    const shares = isShared ? { number: base.number, messages, characters } : null;
    return { continues: null, shares, items: rest, sharesTools, tools, prompt: text };
  }
  // An agent usually sends the reply of the call before as its next message.
  const [next] = rest;
  const isReply = next !== undefined && base.reply !== null && (next.as ?? contentOf(next.is).digest) === base.reply;
  const items = isReply ? rest.slice(1) : rest;
  return { continues: base.number, shares: null, items, sharesTools, tools, prompt: text };
}

const EMPTY_FIELDS = contentOf({});

/** Requests whose messages or prompt are no list of objects and no text have them among their other fields. */
function messagesIn([fields]: readonly unknown[]): unknown[] {
  if (!isObject(fields)) return [];
  if (Array.isArray(fields.messages)) return fields.messages;
  return fields.prompt === undefined ? [] : [{ role: 'user', content: fields.prompt }];
}

function learn(contents: Map<string, unknown>, { fields, lists }: ShortRequest, response: JsonObject | null): void {
  const items = Object.values(lists).flatMap(([, rest]) => rest);
  for (const { is, as } of [fields, ...items]) if (as === undefined) contents.set(contentOf(is).digest, is);
  for (const { core, digest } of repliesOf(response)) contents.set(digest, core);
}

/** Searches the calls before a page for contents that it refers to, the latest first, and keeps only those. */
async function findContents(
  db: Database,
  { at, before }: { at: At; before: number },
  { wanted, contents }: { wanted: Set<string>; contents: Map<string, unknown> },
): Promise<void> {
  let left = MOST_SEARCHED_BYTES;
  for (let seq = before; wanted.size > 0 && left > 0;) {
    const sizes = await db
      .select({ id: calls.id, seq: calls.seq, bytes: BYTES })
      .from(calls)
      .where(and(ofAttempt(at), lt(calls.seq, seq)))
      .orderBy(desc(calls.seq))
      .limit(SEARCHED_AT_ONCE);
    const some = withinBytes(sizes, Math.min(left, MOST_PAGE_BYTES));
    const last = some.at(-1);
    if (!last) return;
    seq = last.seq;
    left -= some.reduce((sum, { bytes }) => sum + bytes, 0);
    const texts = await readTexts(
      db,
      some.map(({ id }) => id),
    );
    for (const { short, response } of texts.values()) {
      const own = new Map<string, unknown>();
      learn(own, short, response);
      for (const [digest, core] of own) if (wanted.delete(digest)) contents.set(digest, core);
    }
  }
}

function replyOf(response: JsonObject | null): unknown {
  const [choice] = choicesOf(response);
  if (!choice) return null;
  return isObject(choice.message) ? choice.message : { role: 'assistant', content: choice.text ?? '' };
}
