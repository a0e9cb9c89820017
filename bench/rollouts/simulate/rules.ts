/** The rules of a simulated run. Times are in medians of a trial's duration. */
export type Rules = {
  /** The number of trials that the engines sample at once. */
  slots: number;
  /** The number of groups in a batch (invariant 10). */
  groupsPerStep: number;
  groupSize: number;
  /** The largest staleness: a step's starting version minus the version that sampled a trial's first token. */
  maxStaleness: number;
  /** `max_concurrent_groups` of invariant 10. */
  maxConcurrentGroups: number;
  /** A group starts only while fewer trials than this run or wait for a slot. */
  maxConcurrentTrials: number;
  /** The number of ended trials after which a group counts as ended. */
  quorum: number;
  /** The treatment of the group's other trials after the quorum. */
  stragglers: 'wait' | 'cancel' | 'carry_over';
  /** Trials started beyond `groupSize`; the first `groupSize` to end are used. */
  overSampling: number;
  /** If at least this number of a group's trials have ended and the next step is the last that can use them, it takes them although the group is below its quorum. 0 means never. */
  lastCall: number;
  /** The number of running trials that a step may make stale, plus one for each idle slot. The step waits while there are more. */
  maxStaleStragglers: number;
  /** When running trials that no later step can use release their slots: at the start of the step, or when its version is published. */
  endsStale: 'step' | 'publication';
  /** These do not start while a step is trained and published, so that they start with the next version. */
  holds: 'nothing' | 'groups' | 'trials';
  /** The time at which a trial is cut. It is trained on with its reward. */
  deadline: number;
  trainTime: number;
  /** The time for which engines are paused. */
  publishTime: number;
};

/** The run's own loop with 8 groups × 8 trials a step on 64 slots. The deadline is the 99th percentile of a trial's duration. */
export const synchronous: Rules = {
  slots: 64,
  groupsPerStep: 8,
  groupSize: 8,
  maxStaleness: 0,
  maxConcurrentGroups: Number.POSITIVE_INFINITY,
  maxConcurrentTrials: Number.POSITIVE_INFINITY,
  quorum: 8,
  stragglers: 'wait',
  overSampling: 0,
  lastCall: 0,
  maxStaleStragglers: Number.POSITIVE_INFINITY,
  endsStale: 'publication',
  holds: 'groups',
  deadline: 20,
  trainTime: 0.25,
  publishTime: 0.05,
};

/** Returns the number of trials with which a group ends. */
export const groupTrials = ({ groupSize, quorum, stragglers }: Rules): number =>
  stragglers === 'cancel' ? quorum : groupSize;
