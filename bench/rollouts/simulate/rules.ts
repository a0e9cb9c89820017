/** What a simulated run is held to. Times are in medians of a trial's duration. */
export type Rules = {
  /** How many trials the engines sample at once. */
  slots: number;
  /** `batch` of rule 10: what one step takes. */
  groupsPerStep: number;
  groupSize: number;
  /** A step's starting version less the version that sampled a trial's first token. */
  maxStaleness: number;
  /** `max_concurrent` of rule 10. */
  maxConcurrentGroups: number;
  /**
   * What `batch` and capacity count. `groups`: rule 10 as it stands, a step takes `groupsPerStep` groups. `trials`: a step takes the oldest
   * groups until it has `groupsPerStep × groupSize` trials, and a trial that is dropped makes room for another.
   */
  count: 'groups' | 'trials';
  /** Ended trials after which a group counts as ended. */
  quorum: number;
  /** What becomes of a group's other trials then. */
  stragglers: 'wait' | 'cancel' | 'carry_over';
  /** Trials started beyond `groupSize`; the first `groupSize` to end are used. */
  overSampling: number;
  /** Trials that the next step would be the last to take are taken from groups below their quorum too, if so many have ended; 0: never. */
  lastCall: number;
  /** How long a step that could start waits for running trials that it would make stale. */
  patience: number;
  /** Whose version says how old a trial is: its own first token's, or what the engines had when its group was planned. */
  ageOf: 'first token' | 'group';
  /** Which running trials end, and give their slots back, when no later step may take them: all, or those of groups that no step has taken yet. */
  endsStale: 'all' | 'untaken groups';
  /** What does not start while a step is trained and published, so that what starts next has the version after it. */
  holds: 'nothing' | 'groups' | 'trials';
  /** A trial is cut then, and trained on with its reward. */
  deadline: number;
  trainTime: number;
  /** Engines stand still for so long. */
  publishTime: number;
};

/** 8 groups × 8 trials a step on 64 slots. The deadline is the 99th percentile of a trial's duration. */
export const synchronous: Rules = {
  slots: 64,
  groupsPerStep: 8,
  groupSize: 8,
  maxStaleness: 0,
  maxConcurrentGroups: 8,
  count: 'groups',
  quorum: 8,
  stragglers: 'wait',
  overSampling: 0,
  lastCall: 0,
  patience: 0,
  ageOf: 'first token',
  endsStale: 'all',
  holds: 'nothing',
  deadline: 20,
  trainTime: 0.25,
  publishTime: 0.05,
};
