/** What a simulated run is held to. Times are in medians of a trial's duration. */
export type Rules = {
  /** How many trials the engines sample at once. */
  slots: number;
  /** `batch` of invariant 10: what one step takes. */
  groupsPerStep: number;
  groupSize: number;
  /** A step's starting version less the version that sampled a trial's first token. */
  maxStaleness: number;
  /** `max_concurrent` of invariant 10. */
  maxConcurrentGroups: number;
  /** A group starts only while fewer trials than this run or wait for a slot. */
  maxConcurrentTrials: number;
  /** Ended trials after which a group counts as ended. */
  quorum: number;
  /** What becomes of a group's other trials then. */
  stragglers: 'wait' | 'cancel' | 'carry_over';
  /** Trials started beyond `groupSize`; the first `groupSize` to end are used. */
  overSampling: number;
  /** Trials that the next step would be the last to take are taken from groups below their quorum too, if so many have ended; 0: never. */
  lastCall: number;
  /** How many running trials a step may make stale, besides one for each idle place: it waits while there are more. */
  maxStaleStragglers: number;
  /** When running trials that no later step may take give their slots back: as the step starts, or when its version is published. */
  endsStale: 'step' | 'publication';
  /** What does not start while a step is trained and published, so that what starts next has the version after it. */
  holds: 'nothing' | 'groups' | 'trials';
  /** A trial is cut then, and trained on with its reward. */
  deadline: number;
  trainTime: number;
  /** Engines stand still for so long. */
  publishTime: number;
};

/** 8 groups × 8 trials a step on 64 slots, by the run's own loop. The deadline is the 99th percentile of a trial's duration. */
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

/** Trials that a group ends with. */
export const groupTrials = ({ groupSize, quorum, stragglers }: Rules): number => (stragglers === 'cancel' ? quorum : groupSize);
