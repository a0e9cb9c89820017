export type TrialState = 'queued' | 'running' | 'ended' | 'trained' | 'stale' | 'cut';

/** A simulated trial. Times are those of the engines' clock, which stops during a publication. */
export type Trial = {
  readonly group: Group;
  readonly duration: number;
  readonly truncated: boolean;
  state: TrialState;
  /** The policy version of its first token. */
  version: number;
  startedAt: number;
  /** The slot-time that it has used. */
  used: number;
};

export type Group = {
  readonly ordinal: number;
  /** Its state, as invariant 10 counts trials. */
  state: 'running' | 'eligible' | 'consumed' | 'dropped';
  trials: Trial[];
};

export function makeGroup(ordinal: number, durations: readonly number[], deadline: number): Group {
  const group: Group = { ordinal, state: 'running', trials: [] };
  group.trials = durations.map((duration) => ({
    group,
    duration: Math.min(duration, deadline),
    truncated: duration > deadline,
    state: 'queued',
    version: -1,
    startedAt: -1,
    used: 0,
  }));
  return group;
}

export const countOf = (group: Group, state: TrialState): number =>
  group.trials.reduce((count, trial) => count + (trial.state === state ? 1 : 0), 0);

export const isOpen = ({ state }: Trial): boolean => state === 'queued' || state === 'running';

/** Returns independent copies of the groups, and a function from a trial to its copy. */
export function cloneGroups(groups: readonly Group[]): { groups: Group[]; copyOf: (trial: Trial) => Trial } {
  const copies = new Map<Trial, Trial>();
  const cloned = groups.map((group) => {
    const copy: Group = { ...group, trials: [] };
    for (const trial of group.trials) {
      const twin = { ...trial, group: copy };
      copy.trials.push(twin);
      copies.set(trial, twin);
    }
    return copy;
  });
  return {
    groups: cloned,
    copyOf: (trial) => {
      const twin = copies.get(trial);
      if (!twin) throw new Error('a trial of no group that is still open');
      return twin;
    },
  };
}
