/** Times are in seconds. */
export type TimedCall = {
  /** The engine that has the call; null while it has none. */
  engine: string | null;
  start: number;
  /** The time of its first token; null before it, and for a reply that is not streamed. */
  first: number | null;
  /** Null while it is under way. */
  end: number | null;
  /** The sampled tokens that have come. */
  tokens: number;
  stream: boolean;
  /** True when a grammar binds the reply. Such a call may be slow by itself, so nothing of it counts as a wait. */
  isConstrained: boolean;
};

export type EngineWait = {
  /** The time that the trial waited for its engine. */
  seconds: number;
  /** True when calls of other trials waited with it, so that its own calls alone are not the cause. */
  isShared: boolean;
};

type Interval = readonly [from: number, to: number];

/** A token is late after so many times the pool's median. */
const TIMES_USUAL = 4;
/** No agent is expected to bear less than two tokens a second, even if the whole pool is as slow. */
const MOST_SECONDS_PER_TOKEN = 0.5;

/**
 * Returns how long a trial waited for its engine: before first tokens, and for tokens that came late. Parallel calls count once. A wait
 * counts only while calls of other trials wait for the same engine too, if it has any: what an agent does to its own calls (long prompts,
 * many at once) then gives it no time. `others` has the calls of the pool's other trials, `perToken` the median time of a token in the
 * pool, or null when it has completed no call.
 */
export function engineWait(
  own: readonly TimedCall[],
  { others, perToken, now }: { others: readonly TimedCall[]; perToken: number | null; now: number },
): EngineWait {
  const allowed = perToken === null ? 0 : Math.min(TIMES_USUAL * perToken, MOST_SECONDS_PER_TOKEN);
  let isShared = false;
  const waits = own.flatMap((call) =>
    waitsOf(call, allowed, now).flatMap((wait) => {
      const rivals = others.filter((other) => competes(other, call, wait, now));
      if (rivals.length === 0) return [wait];
      const common = within(wait, union(rivals.flatMap((rival) => waitsOf(rival, allowed, now))));
      isShared ||= common.length > 0;
      return common;
    }),
  );
  return { seconds: lengthOf(union(waits)), isShared };
}

/** Returns the times before the first token, and at the end those that its tokens came late by together. */
function waitsOf(call: TimedCall, allowed: number, now: number): Interval[] {
  if (call.isConstrained) return [];
  const end = call.end ?? now;
  const first = call.stream ? (call.first ?? end) : call.start;
  const late = Math.min(end, Math.max(first, first + call.tokens * allowed));
  return [[call.start, first] as const, [late, end] as const].filter(([from, to]) => to > from);
}

/** True when the same engine had that call of another trial meanwhile. A call without an engine competes with all. */
const competes = (other: TimedCall, call: TimedCall, [from, to]: Interval, now: number): boolean =>
  (call.engine === null || other.engine === null || other.engine === call.engine) &&
  other.start < to &&
  (other.end ?? now) > from;

/** Returns the parts of an interval that lie in the others. */
const within = (interval: Interval, others: readonly Interval[]): Interval[] =>
  others
    .map(([from, to]) => [Math.max(from, interval[0]), Math.min(to, interval[1])] as const)
    .filter(([from, to]) => to > from);

/** Returns the intervals without overlaps, in order. */
function union(intervals: readonly Interval[]): Interval[] {
  const joined: [number, number][] = [];
  for (const [from, to] of intervals.toSorted((a, b) => a[0] - b[0])) {
    const last = joined.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else joined.push([from, to]);
  }
  return joined;
}

const lengthOf = (intervals: readonly Interval[]): number => intervals.reduce((sum, [from, to]) => sum + to - from, 0);
