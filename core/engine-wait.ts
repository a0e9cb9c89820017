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

/** What is usual in a pool: medians over completed calls of other trials. Null where there is none. */
export type Usual = {
  /** Seconds a token. */
  token: number | null;
  /** Seconds until the first token of a stream. */
  firstToken: number | null;
  /** Seconds of a reply that comes whole. */
  wholeReply: number | null;
  /** The tokens of such a reply. */
  wholeTokens: number | null;
  /** True when streams come whole too, as where the engine's parser needs all of a reply. */
  streamsWhole: boolean;
};

export type EngineWait = {
  /** The time that the trial waited for its engine. */
  seconds: number;
  /** True when calls of other trials waited for most of that time too, so that its own calls alone are not the cause. */
  isShared: boolean;
};

type Interval = readonly [from: number, to: number];

/** A token, or a reply, is late after so many times the pool's median. */
const TIMES_USUAL = 4;
/** Slower than two tokens a second always counts as waiting, however slow the pool is. */
const MOST_SECONDS_PER_TOKEN = 0.5;
/** A first token is late after so long, however slow the pool is. */
const MOST_SECONDS_TO_FIRST = 5;
/** While a trial has more calls than this at once, it waits for its own calls. */
const MOST_PARALLEL = 8;
/** Faster than any engine samples one reply: its tokens came at once. */
const WHOLE_SECONDS_PER_TOKEN = 0.0005;
const LEAST_TOKENS = 4;

/** True when a reply came whole, although it may have been asked for as a stream. */
const cameWhole = ({ stream, first, end, tokens }: TimedCall): boolean =>
  !stream ||
  (first !== null && end !== null && tokens >= LEAST_TOKENS && end - first < tokens * WHOLE_SECONDS_PER_TOKEN);

/** Returns what is usual, from calls of which those that did not end with tokens are left out. */
export function usualOf(calls: readonly TimedCall[]): Usual {
  const ended = calls.filter(
    ({ end, tokens, isConstrained }) => end !== null && tokens >= LEAST_TOKENS && !isConstrained,
  );
  const whole = ended.filter(cameWhole);
  const streamed = ended.filter((call) => !cameWhole(call));
  const streams = ended.filter(({ stream }) => stream);
  return {
    token: median([
      ...whole.map(({ start, end, tokens }) => ((end ?? start) - start) / tokens),
      ...streamed.map(({ first, start, end, tokens }) => ((end ?? start) - (first ?? start)) / tokens),
    ]),
    firstToken: median(streamed.map(({ start, first }) => (first ?? start) - start)),
    wholeReply: median(whole.map(({ start, end }) => (end ?? start) - start)),
    wholeTokens: median(whole.map(({ tokens }) => tokens)),
    streamsWhole: streams.filter(cameWhole).length * 2 > streams.length,
  };
}

/**
 * Returns how long a trial waited for its engine: for a first token that came late, and for tokens that came late. Parallel calls count
 * once. A wait does not count while the same engine serves calls of other trials, or while the trial has many calls at once: what an agent
 * does to its own calls gives it no time. `others` has the calls of the pool's other trials.
 */
export function engineWait(
  own: readonly TimedCall[],
  { others, usual, now }: { others: readonly TimedCall[]; usual: Usual; now: number },
): EngineWait {
  const crowded = crowdedTimes(own, now);
  const counted: Interval[] = [];
  const shared: Interval[] = [];
  for (const call of own) {
    const rivals = others.filter((other) => competes(other, call, now));
    const theirWaits = union(rivals.flatMap((rival) => waitsOf(rival, usual, now)));
    const served = without(
      union(rivals.flatMap((rival) => (isServed(rival, usual) ? [[rival.start, rival.end ?? now] as const] : []))),
      theirWaits,
    );
    const waits = without(without(waitsOf(call, usual, now), served), crowded);
    counted.push(...waits);
    shared.push(...waits.flatMap((wait) => within(wait, theirWaits)));
  }
  const seconds = lengthOf(union(counted));
  return { seconds, isShared: seconds > 0 && lengthOf(union(shared)) * 2 >= seconds };
}

/** Returns the time in which a call waited, at most one interval before its first token and one at its end. */
function waitsOf(call: TimedCall, usual: Usual, now: number): Interval[] {
  if (call.isConstrained) return [];
  const end = call.end ?? now;
  const perToken = usual.token === null ? 0 : Math.min(TIMES_USUAL * usual.token, MOST_SECONDS_PER_TOKEN);
  // Nothing is known of a reply before it comes, if it comes whole.
  const isWhole = cameWhole(call) || (call.first === null && usual.streamsWhole);
  const expected = isWhole
    ? call.tokens > 0
      ? call.tokens * perToken
      : // In a pool that is slow as a whole, what is usual is slow too, and replies that are still awaited are not in it.
        Math.min(TIMES_USUAL * (usual.wholeReply ?? 0), MOST_SECONDS_PER_TOKEN * (usual.wholeTokens ?? 0))
    : call.first === null
      ? Math.min(TIMES_USUAL * (usual.firstToken ?? 0), MOST_SECONDS_TO_FIRST)
      : 0;
  if (isWhole || call.first === null) return nonEmpty([[call.start + expected, end]]);
  const beforeFirst = Math.min(TIMES_USUAL * (usual.firstToken ?? 0), MOST_SECONDS_TO_FIRST);
  return nonEmpty([
    [call.start + beforeFirst, call.first],
    [call.first + call.tokens * perToken, end],
  ]);
}

/** False when a call certainly got no token. */
const isServed = ({ stream, first, tokens }: TimedCall, { streamsWhole }: Usual): boolean =>
  !stream || streamsWhole || first !== null || tokens > 0;

/** True when the same engine had that call of another trial meanwhile. A call without an engine competes with all. */
const competes = (other: TimedCall, call: TimedCall, now: number): boolean =>
  !other.isConstrained &&
  (call.engine === null || other.engine === null || other.engine === call.engine) &&
  other.start < (call.end ?? now) &&
  (other.end ?? now) > call.start;

/** Returns the times in which a trial has many calls at once. */
function crowdedTimes(own: readonly TimedCall[], now: number): Interval[] {
  const changes = own
    .flatMap(({ start, end }) => [
      { at: start, by: 1 },
      { at: end ?? now, by: -1 },
    ])
    .toSorted((a, b) => a.at - b.at || a.by - b.by);
  const crowded: Interval[] = [];
  let count = 0;
  for (const [i, { at, by }] of changes.entries()) {
    count += by;
    const next = changes[i + 1]?.at ?? at;
    if (count > MOST_PARALLEL && next > at) crowded.push([at, next]);
  }
  return crowded;
}

const nonEmpty = (intervals: readonly Interval[]): Interval[] => intervals.filter(([from, to]) => to > from);

/** Returns the parts of an interval that lie in the others. */
const within = (interval: Interval, others: readonly Interval[]): Interval[] =>
  nonEmpty(others.map(([from, to]) => [Math.max(from, interval[0]), Math.min(to, interval[1])] as const));

/** Returns the parts of intervals that lie in none of the others. */
function without(intervals: readonly Interval[], others: readonly Interval[]): Interval[] {
  let left = [...intervals];
  for (const [from, to] of others)
    left = left.flatMap((each) =>
      nonEmpty([
        [each[0], Math.min(each[1], from)],
        [Math.max(each[0], to), each[1]],
      ]),
    );
  return left;
}

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

function median(values: readonly number[]): number | null {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? null;
}
