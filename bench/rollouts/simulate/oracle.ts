import { Durations, oneByOne, WIDTH } from './durations.ts';
import { measure, type Figures } from './figures.ts';
import type { Trial } from './group.ts';
import type { Rules } from './rules.ts';
import { Simulation, type Pace } from './simulation.ts';

export type Objective = 'useful' | 'rate';

/** Waiting times in medians that the oracle may choose, besides the ends of trials that would become stale. */
const WAITS = [0, 0.25, 0.5, 1, 2, 3, 4];
const LONGEST_WAIT = 6;
const ROUNDS = 2;

export const ORACLE = `The oracle knows how long every trial takes. It is held to what every scheduler here is held to: trials start in the order of their groups, none is
left out, cut or paused before no step may take it any more; a free slot takes the next one as long as capacity allows; a step takes 64 trials
and trains as long. (One row has it take 66: groups come whole, so that policies take some more than 64, and who takes more may wait longer.) It
is not held to groups and quorums: any trial that ended in time counts. What it chooses, with all that will happen before its eyes, is when each
step starts: a late step lets a long trial in, an early one makes room. Work that goes stale is lost for it too. (One that might leave trials out
would train on nothing but short ones.) Its choice is made by looking ahead over ${WAITS.length} waits and every straggler's end. It is a search, and a better one
would find more: in a trial over three seeds and 60 steps, 33 waits found 0.4 % more at staleness 1 and 0.1 % at 2, two steps further ahead 0.4 %
and 0.1 % less, and the best of the three searches for each seed 0.4 % and 1.0 % more.`;

/** Returns the rules with single trials in place of groups. */
export function oracleRules(rules: Rules, batch = rules.groupsPerStep * rules.groupSize): Rules {
  return { ...rules, groupsPerStep: batch, groupSize: 1, quorum: 1, stragglers: 'carry_over', endsStale: 'step' };
}

/** Returns the best figures for `objective` that the search finds, also among starts that wait for the step under way. */
export function consultOracle(
  rules: Rules,
  {
    seed,
    shared = 0,
    objective,
    steps,
    batch,
  }: { seed: number; shared?: number; objective: Objective; steps: number; batch?: number },
): Figures {
  const durations = () => oneByOne(new Durations(seed, WIDTH, shared), rules.groupSize);
  let best: Figures | undefined;
  for (const holds of ['nothing', 'trials'] as const) {
    const held = { ...oracleRules(rules, batch), holds };
    let figures = measure(held, durations(), { steps });
    for (let round = 0; round < ROUNDS; round++) {
      // Dinkelbach's method: the best ratio is the price of time at which the best sum is 0.
      const price = objective === 'rate' ? figures.rate : figures.useful * rules.slots;
      const found = measure(held, durations(), { steps, pace: foreseeing(objective, price, figures.stepInterval) });
      if (found[objective] > figures[objective]) figures = found;
    }
    if (!best || figures[objective] > best[objective]) best = figures;
  }
  if (!best) throw new Error('the oracle was not asked');
  return best;
}

/** Returns a pace that starts each step when the next steps bring the most, minus `price` for each median of time. */
function foreseeing(objective: Objective, price: number, interval: number): Pace {
  let [decided, at] = [-1, 0];
  return (simulation) => {
    const { steps, now, engineNow, rules } = simulation;
    if (decided === steps) return at;
    const ends = simulation.atLimit().map(({ startedAt, duration }) => now + startedAt + duration - engineNow + 1e-9);
    const starts = [...WAITS.map((wait) => now + wait), ...ends.filter((end) => end < now + LONGEST_WAIT)];
    let most = Number.NEGATIVE_INFINITY;
    for (const start of starts) {
      const future = simulation.fork((fork) => (fork.steps === steps ? start : fork.now));
      let value = 0;
      future.settled = (trial) => {
        if (trial.state === 'trained') value += worth(trial, objective);
      };
      while (future.steps < steps + rules.maxStaleness + 2) future.advance();
      value += underWay(future, objective, interval) - price * (future.now - now);
      if (value > most) [most, at] = [value, start];
    }
    decided = steps;
    return at;
  };
}

const worth = (trial: Trial, objective: Objective): number => (objective === 'rate' ? 1 : trial.duration);

/** Returns what was spent so far on trials that will end in time at the usual pace. */
function underWay({ groups, version, engineNow, rules }: Simulation, objective: Objective, interval: number): number {
  let value = 0;
  for (const trial of groups.flatMap(({ trials }) => trials)) {
    if (trial.state === 'ended') value += worth(trial, objective);
    if (trial.state !== 'running') continue;
    const spent = engineNow - trial.startedAt;
    const left = (trial.version + rules.maxStaleness - version + 1) * interval;
    if (trial.duration - spent <= left) value += worth(trial, objective) * (spent / trial.duration);
  }
  return value;
}
