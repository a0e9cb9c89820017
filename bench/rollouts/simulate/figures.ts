import { SIGMA, type Durations } from './durations.ts';
import type { Trial } from './group.ts';
import type { Rules } from './rules.ts';
import { Simulation, type Pace } from './simulation.ts';

export type Share = { started: number; trained: number };

export type Figures = {
  /** The share of slot-time of trained trials. */
  useful: number;
  /** The share of slot-time of lost trials, which were stale or cut at a quorum. */
  lost: number;
  /** The share of slot-time without a trial: nothing could start, a step was under way, or weights were published. */
  idle: { nothing: number; train: number; publish: number };
  /** Trained samples in a median of time. */
  rate: number;
  samplesPerStep: number;
  stepInterval: number;
  staleness: number[];
  /** The share of started trials that were trained on, by their duration's quantile (QUANTILES). */
  trainedShare: number[];
};

/** Upper ends of the bands of `trainedShare`. */
export const QUANTILES = [0.5, 0.75, 0.9, 0.95, 0.99, 1];
/** The standard normal's values at QUANTILES. */
const Z = [0, 0.674_49, 1.281_55, 1.644_85, 2.326_35, Number.POSITIVE_INFINITY];

export const bandOf = (duration: number): number => Z.findIndex((z) => duration <= Math.exp(SIGMA * z));

/** Runs `warmUp` steps, then `steps` steps whose trials are counted. */
export function measure(
  rules: Rules,
  durations: Pick<Durations, 'of'>,
  { steps = 400, warmUp = 20, pace }: { steps?: number; warmUp?: number; pace?: Pace } = {},
): Figures {
  const simulation = new Simulation(rules, durations, pace);
  while (simulation.steps < warmUp) simulation.advance();
  const start = simulation.now;
  const before = { ...simulation.idle };
  const shares: Share[] = QUANTILES.map(() => ({ started: 0, trained: 0 }));
  const staleness: number[] = Array.from({ length: rules.maxStaleness + 1 }, () => 0);
  let [useful, lost] = [0, 0];
  simulation.settled = (trial: Trial, age) => {
    const share = shares[bandOf(trial.duration)];
    if (!share) throw new Error('a duration outside of every band');
    share.started += 1;
    if (trial.state === 'trained') {
      share.trained += 1;
      useful += trial.used;
      staleness[age] = (staleness[age] ?? 0) + 1;
    } else lost += trial.used;
  };
  while (simulation.steps < warmUp + steps) simulation.advance();
  const time = simulation.now - start;
  const idle = (doing: keyof Figures['idle']) => (simulation.idle[doing] - before[doing]) / (rules.slots * time);
  const total = staleness.reduce((sum, each) => sum + each, 0);
  return {
    useful: useful / (rules.slots * time),
    lost: lost / (rules.slots * time),
    idle: { nothing: idle('nothing'), train: idle('train'), publish: idle('publish') },
    rate: total / time,
    samplesPerStep: total / steps,
    stepInterval: time / steps,
    staleness: staleness.map((each) => each / total),
    trainedShare: shares.map((share) => share.trained / share.started),
  };
}
