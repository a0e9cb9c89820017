import { and, asc, eq, isNotNull, isNull, sql, type SQL } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { attempts, calls, trials, type groups, type runs } from '../../store/schema.ts';
import { callSpan, type SpannedCall } from './call-span.ts';
import { readEntries } from './logger-entries.ts';
import { metricAttributes, originOf, spanKey, trialKey, type Span, type SpanKey } from './span.ts';
import { traceOf, type Part } from './span-parts.ts';
import { takeSpans } from './take-spans.ts';

type Run = typeof runs.$inferSelect;
type Group = typeof groups.$inferSelect;
type Trial = typeof trials.$inferSelect;

/** A run, and the model that it trains. */
export type Spanned = { run: Run; model: string };

/** The most requests of a trial, of all its attempts, that become spans. */
const MOST_CALLS = 1000;

/** Ends in which the trial itself did not fail. */
const GOOD_ENDS: readonly (string | null)[] = ['scored', 'truncated'];

/** Makes the spans of a part of a run from the record: those of each trial together, and the others behind them. */
export async function* makeSpans(db: Database, { run, model }: Spanned, part: Part): AsyncGenerator<Span[]> {
  const origin = originOf(run);
  if (part.kind === 'group') yield* groupSpans(db, { run, model }, part.group, part.at);
  else if (part.kind === 'take') yield await takeSpans(db, run, part.take);
  else if (part.kind === 'evaluation') yield [await evaluationSpan(db, run, part)];
  else
    yield [
      {
        ...spanKey(origin, 'run'),
        name: 'rl.run',
        start: run.createdAt.getTime(),
        end: part.at,
        attributes: {
          'trialgate.status': run.status,
          'trialgate.forked_from': run.forkedFrom,
          'trialgate.rescores': run.rescores,
        },
        ...(run.status === 'failed' ? failed('failed') : {}),
      },
    ];
}

async function evaluationSpan(db: Database, run: Run, part: Extract<Part, { kind: 'evaluation' }>): Promise<Span> {
  const { evaluation, version, start, at } = part;
  const [entry] = await readEntries(db, run.id, [{ id: ['val', 0, 0], at: new Date(at), evaluation }]);
  return {
    ...spanKey(originOf(run), evaluation),
    name: 'rl.evaluate',
    start,
    end: at,
    attributes: {
      'trialgate.evaluation': evaluation,
      'trialgate.policy_version': version,
      ...metricAttributes(entry?.metrics ?? {}),
    },
    links: [spanKey(originOf(run), 'run')],
  };
}

async function* groupSpans(db: Database, { run, model }: Spanned, group: Group, at: number): AsyncGenerator<Span[]> {
  const trace = traceOf(group);
  const key = spanKey(originOf(run), trace, `group ${group.id}`);
  const rows = await db.select().from(trials).where(eq(trials.groupId, group.id)).orderBy(asc(trials.trialIndex));
  let end = at;
  for (const trial of rows) {
    const spans = await trialSpans(db, { run, model }, trial, key, trace);
    end = Math.max(end, ...spans.map((span) => span.end));
    yield spans;
  }
  yield [
    {
      ...key,
      parent: spanKey(originOf(run), trace).span,
      name: 'rl.sample.group',
      start: group.openedAt.getTime(),
      end,
      attributes: {
        'trialgate.group': group.id,
        'trialgate.kind': group.kind,
        'trialgate.task': group.task,
        'trialgate.policy_version': group.policyVersion,
        'trialgate.dropped': group.dropped,
        'rl.loop.iteration': group.iteration,
        'trialgate.take': group.take,
        'rl.sample.batch_size': group.size,
      },
    },
  ];
}

/** Returns the spans of a trial: its own, that of its verifier, and those of its calls. */
async function trialSpans(
  db: Database,
  { run, model }: Spanned,
  trial: Trial,
  group: SpanKey,
  trace: string,
): Promise<Span[]> {
  const origin = originOf(run);
  const key = trialKey(origin, trace, trial.id);
  const [tries, { made, count }] = await Promise.all([
    db.select().from(attempts).where(eq(attempts.trialId, trial.id)).orderBy(asc(attempts.attempt)),
    readCalls(db, trial.id),
  ]);
  const ofCalls = made.map((call) =>
    callSpan(call, { ...spanKey(origin, trace, `call ${call.id}`), parent: key.span }, trial.id, model),
  );
  const reward = rewardAttributes(trial);
  const times = [...tries.flatMap(({ openedAt, endedAt }) => [openedAt, endedAt]), trial.createdAt, trial.sealedAt];
  const known = times
    .flatMap((time) => (time === null ? [] : [time.getTime()]))
    .concat(ofCalls.flatMap(({ start, end }) => [start, end]));
  const last = tries.at(-1);
  const verified =
    last?.endedAt && last.seconds['verify'] !== undefined
      ? { end: last.endedAt.getTime(), seconds: last.seconds['verify'] }
      : null;
  const { outcome } = trial;
  return [
    ...ofCalls,
    ...(verified
      ? [
          {
            ...spanKey(origin, trace, `reward ${trial.id}`),
            parent: key.span,
            name: 'rl.reward',
            start: verified.end - 1000 * verified.seconds,
            end: verified.end,
            attributes: reward,
          },
        ]
      : []),
    {
      ...key,
      parent: group.span,
      name: 'rl.sample',
      start: Math.min(...known),
      end: Math.max(...known),
      attributes: {
        'gen_ai.conversation.id': trial.id,
        'trialgate.trial': trial.id,
        'trialgate.trial_index': trial.trialIndex,
        'trialgate.group': trial.groupId,
        'trialgate.task': trial.task,
        'trialgate.outcome': outcome ?? 'open',
        'trialgate.attempt': trial.attempt,
        'trialgate.policy_version': trial.policyVersion,
        'trialgate.calls': count,
        'trialgate.calls_left_out': count > made.length ? count - made.length : null,
        ...reward,
      },
      ...(GOOD_ENDS.includes(outcome) ? {} : failed(outcome ?? 'open')),
    },
  ];
}

const rewardAttributes = ({ rewards }: Trial): Record<string, number> =>
  Object.fromEntries(Object.entries(rewards ?? {}).map(([name, value]) => [`trialgate.reward.${name}`, value]));

const failed = (error: string): Pick<Span, 'error'> => ({ error });

/** The number of ids that a column has. PostgreSQL knows the length of a value without loading it. */
const idsIn = (column: typeof calls.promptTokenIds | typeof calls.completionTokenIds): SQL<number | null> =>
  sql<number | null>`octet_length(${column}) / 4`;

/** Reads the requests of a trial, of all its attempts. A request for several replies is one. Their texts stay in the record. */
async function readCalls(db: Database, trialId: string): Promise<{ made: SpannedCall[]; count: number }> {
  const requests = and(eq(calls.trialId, trialId), isNull(calls.choiceOf));
  const [[counted], made] = await Promise.all([
    db
      .select({ count: sql<number>`count(*)::integer` })
      .from(calls)
      .where(requests),
    db
      .select({
        id: calls.id,
        attempt: calls.attempt,
        status: calls.status,
        reason: calls.reason,
        httpStatus: calls.httpStatus,
        protocol: calls.protocol,
        stream: calls.stream,
        sampling: calls.sampling,
        finishReason: calls.finishReason,
        weightVersion: calls.weightVersion,
        policyVersion: calls.policyVersion,
        continuation: calls.continuation,
        untrainable: calls.untrainable,
        startedAt: calls.startedAt,
        firstTokenAt: calls.firstTokenAt,
        traceparent: calls.traceparent,
        endedAt: calls.endedAt,
        promptTokens: sql<number | null>`${calls.sharedIds} + ${idsIn(calls.promptTokenIds)}`,
        completionTokens: idsIn(calls.completionTokenIds),
      })
      .from(calls)
      .where(requests)
      .orderBy(asc(calls.seq))
      .limit(MOST_CALLS),
  ]);
  const further = await db
    .select({ of: calls.choiceOf, finishReason: calls.finishReason, completionTokens: idsIn(calls.completionTokenIds) })
    .from(calls)
    .where(and(eq(calls.trialId, trialId), isNotNull(calls.choiceOf)))
    .orderBy(asc(calls.seq));
  const replies = Map.groupBy(further, (reply) => reply.of);
  return {
    made: made.map((call) => ({ ...call, further: replies.get(call.id) ?? [] })),
    count: counted?.count ?? 0,
  };
}
