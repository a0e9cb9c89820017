import { SIGMA } from './durations.ts';
import type { Rules } from './rules.ts';

export const CEILING = `The ceilings are proved, for many trials, of every scheduler that steps at an even pace, takes at most 64 trials a step in the order in which they
started, leaves none out and cuts none before it is stale. With L from step to step, a trial has between s L - c and (s + 1) L - c until no step
may take it (c = train + publish). F, G, M of a window w: the share of trials that end within it, their time, and all trials' time up to it.
Not knowing durations, a scheduler cannot choose which trial has the long window. Useful slot-time: G/M grows with w, so it is at most G/M at the
longest window, and at most G/F/L since a step takes no more than 64; the best L is the ceiling. Samples: at most 64 F/M at the best window, and
64/L. Knowing durations, it may give each trial the window it likes: what ends in time has the longest, and what is lost costs the shortest
(nothing like it bounds samples: short ones are cheap). The oracle
that was searched for steps unevenly, and may pass the first ceiling by that.`;

export type Ceiling = { useful: number; rate: number };

export function ceiling(rules: Rules, knowing: boolean): Ceiling {
  const { slots, groupsPerStep, groupSize, maxStaleness, trainTime, publishTime, deadline } = rules;
  const batch = groupsPerStep * groupSize;
  const busy = trainTime + publishTime;
  const most: Ceiling = { useful: 0, rate: 0 };
  for (let pace = busy + 0.01; pace < 2 * deadline; pace += 0.01) {
    const sampling = slots * (pace - publishTime);
    const [shortest, longest] = [maxStaleness * pace - busy, (maxStaleness + 1) * pace - busy];
    const inTime = within(longest, deadline);
    const spent = knowing ? inTime.time + (1 - inTime.share) * Math.max(0, shortest) : inTime.spent;
    const useful = Math.min((sampling * inTime.time) / spent, (batch * inTime.time) / inTime.share) / (slots * pace);
    most.useful = Math.max(most.useful, useful);
    most.rate = Math.max(
      most.rate,
      Math.min((sampling * densest(Math.max(shortest, 0), longest, deadline, knowing)) / pace, batch / pace),
    );
  }
  return most;
}

/** Returns the largest number of trials in a unit of slot-time, over the windows that a trial may have. */
function densest(shortest: number, longest: number, deadline: number, knowing: boolean): number {
  let most = 0;
  for (let window = Math.max(shortest, 0.01); window <= longest; window += 0.01) {
    const { share, time, spent } = within(window, deadline);
    most = Math.max(most, share / (knowing ? time + (1 - share) * shortest : spent));
  }
  return most;
}

/** Returns F, G and M for log-normal durations with median 1 that are cut at the deadline. */
export function within(window: number, deadline: number): { share: number; time: number; spent: number } {
  const cut = Math.min(window, deadline);
  if (cut <= 0) return { share: 0, time: 0, spent: 0 };
  const ended = normalBelow(Math.log(cut) / SIGMA);
  const time = Math.exp(SIGMA ** 2 / 2) * normalBelow(Math.log(cut) / SIGMA - SIGMA);
  const rest = (1 - ended) * cut;
  return window >= deadline
    ? { share: 1, time: time + rest, spent: time + rest }
    : { share: ended, time, spent: time + rest };
}

/** Returns the standard normal distribution function, exact to 1e-7 (Abramowitz and Stegun 26.2.17). */
export function normalBelow(z: number): number {
  const t = 1 / (1 + 0.231_641_9 * Math.abs(z));
  const tail =
    ((((1.330_274_429 * t - 1.821_255_978) * t + 1.781_477_937) * t - 0.356_563_782) * t + 0.319_381_53) *
    t *
    (Math.exp(-(z * z) / 2) / Math.sqrt(2 * Math.PI));
  return z >= 0 ? 1 - tail : tail;
}
