import { ConversationCounts } from '../conversations/conversation-memory.ts';
import type { EngineLoad } from '../engines/load.ts';
import type { EnginePool, ReplicaLoad } from '../engines/pool.ts';
import { CONTINUATIONS, type Continuation } from '../../store/schema.ts';

/**
 * Counts calls since this process started. Each count is independent, so accepted = completed + failed + cancelled + inFlight shows that no
 * call was lost.
 */
export class Counters {
  accepted = 0;
  completed = 0;
  failed = 0;
  cancelled = 0;
  inFlight = 0;
  /** Calls that wait because others of their trial have reserved the rest of its budgets. They are not accepted yet. */
  waiting = 0;
  /** Completed calls that were not their trial's first, by how they continue an earlier one. */
  readonly continuations: Record<Continuation, number> = { clean: 0, drifted: 0, branched: 0 };
  /** Blocks, items and tools that were left out of a prompt, by type. Each is counted once per trial. */
  readonly leftOut = new NamedCounts();
  /** Requests that were refused before they became calls, by the code of the refusal. */
  readonly refused = new NamedCounts();
  /** Calls whose request forces the form of the reply, by what the gateway did (`enforce` or `hint`) and by field. */
  readonly constrained = { enforce: new NamedCounts(), hint: new NamedCounts() };
  /** The tokens that completed calls sampled, and the seconds that these took, by engine. A call's wait for its first token is not among them. */
  readonly sampled = new Map<string, { tokens: number; seconds: number }>();
  /** Trials for which the log already says that such calls are not trained. */
  readonly #reported = new Set<string>();
  readonly conversations = new ConversationCounts();

  /** Returns the sum of these counts and another thread's. */
  plus(other: PlainCounts): Counters {
    const sum = new Counters();
    for (const each of [this, other]) {
      for (const name of CALL_COUNTS) sum[name] += each[name];
      for (const how of CONTINUATIONS) sum.continuations[how] += each.continuations[how];
      for (const name of CONVERSATION_COUNTS) sum.conversations[name] += each.conversations[name];
      for (const [engine, { tokens, seconds }] of each.sampled) sum.addSampled(engine, tokens, seconds);
      sum.leftOut.addAll(each.leftOut);
      sum.refused.addAll(each.refused);
      sum.constrained.enforce.addAll(each.constrained.enforce);
      sum.constrained.hint.addAll(each.constrained.hint);
    }
    return sum;
  }

  addSampled(engine: string, tokens: number, seconds: number): void {
    const known = this.sampled.get(engine) ?? { tokens: 0, seconds: 0 };
    this.sampled.set(engine, { tokens: known.tokens + tokens, seconds: known.seconds + seconds });
  }

  /** True when nothing was logged for this trial yet. Forgets the oldest trials. */
  isFirstReport(trialId: string): boolean {
    if (this.#reported.has(trialId)) return false;
    const [oldest] = this.#reported;
    if (oldest !== undefined && this.#reported.size >= MOST_REPORTED_TRIALS) this.#reported.delete(oldest);
    this.#reported.add(trialId);
    return true;
  }
}

const CALL_COUNTS = ['accepted', 'completed', 'failed', 'cancelled', 'inFlight', 'waiting'] as const;
const CONVERSATION_COUNTS = ['bytes', 'readsOfTrials', 'readsOfTurns', 'released', 'forgotten'] as const;

const MOST_NAMES = 50;
const MOST_REPORTED_TRIALS = 10_000;

/** Counts by names that agents choose. Only a limited number of plain names is counted separately, so that agents cannot fill the memory. */
export class NamedCounts extends Map<string, number> {
  add(name: string): void {
    const key = /^[a-z0-9_]{1,60}$/.test(name) && (this.has(name) || this.size < MOST_NAMES) ? name : 'other';
    this.set(key, (this.get(key) ?? 0) + 1);
  }

  addAll(other: ReadonlyMap<string, number>): void {
    for (const [name, count] of other) this.set(name, (this.get(name) ?? 0) + count);
  }
}

/** The plain counts, which can be copied to another thread. */
type PlainCounts = Pick<Counters, (typeof CALL_COUNTS)[number] | 'continuations' | 'conversations'> & {
  sampled: Counters['sampled'];
  leftOut: ReadonlyMap<string, number>;
  refused: ReadonlyMap<string, number>;
  constrained: Record<'enforce' | 'hint', ReadonlyMap<string, number>>;
};

/** The counts of one thread as it sends them to another. */
export type Snapshot = { counters: PlainCounts; engines: readonly ReplicaLoad[]; roomWaits: RoomWaits };

/** Returns the summed loads of two threads on the same engines. */
export function addLoads(own: readonly ReplicaLoad[], others: readonly ReplicaLoad[]): ReplicaLoad[] {
  const sums = new Map<string, ReplicaLoad>();
  for (const load of [...own, ...others]) {
    const { engine } = load;
    const sum = sums.get(engine);
    if (!sum) {
      sums.set(engine, load);
      continue;
    }
    const newest = load.reported && (!sum.reported || load.reportedAt > sum.reportedAt) ? load : sum;
    sums.set(engine, {
      engine,
      inFlight: sum.inFlight + load.inFlight,
      escapes: sum.escapes + load.escapes,
      reported: newest.reported,
      reportedAt: newest.reportedAt,
      complaint: sum.complaint ?? load.complaint,
    });
  }
  return [...sums.values()];
}

type RoomWaits = EnginePool['roomWaits'];

/** Returns the counts in Prometheus's text format. */
export function asMetrics(
  {
    accepted,
    completed,
    failed,
    cancelled,
    inFlight,
    waiting,
    continuations,
    sampled,
    leftOut,
    refused,
    constrained,
    conversations,
  }: Counters,
  engines: readonly ReplicaLoad[],
  roomWaits: readonly RoomWaits[] = [],
): string {
  // An engine that has left is not named any more.
  const sampledBy = engines.flatMap(({ engine }) => {
    const each = sampled.get(engine);
    return each ? [[JSON.stringify(engine), each] as const] : [];
  });
  const ended = { completed, failed, cancelled };
  return [
    '# HELP trialgate_calls_accepted_total Calls that were given to an engine or waited for one.',
    '# TYPE trialgate_calls_accepted_total counter',
    `trialgate_calls_accepted_total ${accepted}`,
    '# HELP trialgate_calls_total Calls that ended, by how.',
    '# TYPE trialgate_calls_total counter',
    ...Object.entries(ended).map(([status, count]) => `trialgate_calls_total{status="${status}"} ${count}`),
    '# HELP trialgate_calls_in_flight Calls under way.',
    '# TYPE trialgate_calls_in_flight gauge',
    `trialgate_calls_in_flight ${inFlight}`,
    '# HELP trialgate_calls_waiting Calls that wait for what others of their trial have reserved of its budgets.',
    '# TYPE trialgate_calls_waiting gauge',
    `trialgate_calls_waiting ${waiting}`,
    '# HELP trialgate_call_continuations_total Calls that completed after others of their trial, by how they go on: clean (by its ids), drifted (by its text), branched (from none).',
    '# TYPE trialgate_call_continuations_total counter',
    ...Object.entries(continuations).map(
      ([how, count]) => `trialgate_call_continuations_total{continuation="${how}"} ${count}`,
    ),
    '# HELP trialgate_refused_total Requests of the model that were refused before they became calls, by the code of the refusal.',
    '# TYPE trialgate_refused_total counter',
    ...[...refused].map(([code, count]) => `trialgate_refused_total{code="${code}"} ${count}`),
    '# HELP trialgate_left_out_total Blocks, items and tools of requests that the model cannot be shown, by type; once a trial.',
    '# TYPE trialgate_left_out_total counter',
    ...[...leftOut].map(([type, count]) => `trialgate_left_out_total{type="${type}"} ${count}`),
    '# HELP trialgate_constrained_calls_total Calls whose request forces the form of the reply, by the field: enforce (by a grammar, trained only with its mask) or hint (by words in the prompt).',
    '# TYPE trialgate_constrained_calls_total counter',
    ...Object.entries(constrained).flatMap(([decoding, counts]) =>
      [...counts].map(
        ([field, count]) => `trialgate_constrained_calls_total{field="${field}",decoding="${decoding}"} ${count}`,
      ),
    ),
    '# HELP trialgate_conversation_bytes Bytes that the gateway keeps about the conversations of open trials: at most `conversation_memory_mb` in each thread.',
    '# TYPE trialgate_conversation_bytes gauge',
    `trialgate_conversation_bytes ${conversations.bytes}`,
    '# HELP trialgate_conversation_reads_total Reads from PostgreSQL of data that is not in memory: new calls of a trial, or the ids of one turn.',
    '# TYPE trialgate_conversation_reads_total counter',
    `trialgate_conversation_reads_total{of="calls"} ${conversations.readsOfTrials}`,
    `trialgate_conversation_reads_total{of="ids"} ${conversations.readsOfTurns}`,
    '# HELP trialgate_conversation_evictions_total How often token ids of a trial were removed from memory because it was full (`ids`), and trials that were removed whole (`trial`).',
    '# TYPE trialgate_conversation_evictions_total counter',
    `trialgate_conversation_evictions_total{of="ids"} ${conversations.released}`,
    `trialgate_conversation_evictions_total{of="trial"} ${conversations.forgotten}`,
    '# HELP trialgate_engine_tokens_total Tokens that completed calls sampled, by engine.',
    '# TYPE trialgate_engine_tokens_total counter',
    ...sampledBy.map(([label, each]) => `trialgate_engine_tokens_total{engine=${label}} ${each.tokens}`),
    '# HELP trialgate_engine_sampling_seconds_total Seconds of these calls from their first token on, or from their start where replies are not streamed. Tokens by seconds are the speed of one call.',
    '# TYPE trialgate_engine_sampling_seconds_total counter',
    ...sampledBy.map(([label, each]) => `trialgate_engine_sampling_seconds_total{engine=${label}} ${each.seconds}`),
    '# HELP trialgate_engine_calls_in_flight Calls that this process has given to an engine.',
    '# TYPE trialgate_engine_calls_in_flight gauge',
    ...engines.map(
      (each) => `trialgate_engine_calls_in_flight{engine=${JSON.stringify(each.engine)}} ${each.inFlight}`,
    ),
    '# HELP trialgate_engine_escapes_total Times that a trial left an engine because it was loaded.',
    '# TYPE trialgate_engine_escapes_total counter',
    ...engines.map((each) => `trialgate_engine_escapes_total{engine=${JSON.stringify(each.engine)}} ${each.escapes}`),
    ...REPORTED.flatMap(([name, type, help, of]) => [
      `# HELP trialgate_engine_${name} ${help}`,
      `# TYPE trialgate_engine_${name} ${type}`,
      ...engines.flatMap(({ engine, reported }) => {
        const value = reported && of(reported);
        return value === null ? [] : [`trialgate_engine_${name}{engine=${JSON.stringify(engine)}} ${value}`];
      }),
    ]),
    ...ROOM_WAITS.flatMap(([name, type, help, of]) => [
      `# HELP trialgate_${name} ${help}`,
      `# TYPE trialgate_${name} ${type}`,
      `trialgate_${name} ${roomWaits.reduce((sum, waits) => sum + waits[of], 0)}`,
    ]),
    '',
  ].join('\n');
}

type Row<Of> = [name: string, type: 'counter' | 'gauge', help: string, of: Of];

/** The metrics of what engines report of themselves. */
const REPORTED: readonly Row<(load: EngineLoad) => number | null>[] = [
  ['running', 'gauge', 'Calls that the engine runs, as it said last.', ({ running }) => running],
  ['waiting', 'gauge', 'Calls that wait in the engine, as it said last.', ({ waiting }) => waiting],
  ['kv_use', 'gauge', 'Part of the KV cache that calls have in use, as the engine said last.', ({ kvUse }) => kvUse],
  ['kv_tokens', 'gauge', 'Size of the KV cache in tokens.', ({ kvTokens }) => kvTokens],
  [
    'prefix_queries_total',
    'counter',
    'Tokens of prompts that the engine looked up in its prefix cache.',
    ({ prefix }) => prefix && prefix.queries,
  ],
  [
    'prefix_hits_total',
    'counter',
    'Tokens of prompts that the engine found in its prefix cache.',
    ({ prefix }) => prefix && prefix.hits,
  ],
];

const ROOM_WAITS: readonly Row<keyof RoomWaits>[] = [
  ['calls_waiting_for_room', 'gauge', "Calls that wait for room in an engine's KV cache.", 'waiting'],
  ['room_waits_total', 'counter', 'Calls that found no engine with room in its KV cache and waited.', 'waited'],
  ['room_refusals_total', 'counter', 'Calls that got a 429 because no room came free in time.', 'refused'],
];
