import type { RunConfig } from '../../activities/run-config.ts';
import { synchronous, type Rules } from './simulate/rules.ts';

export type Policy = {
  name: string;
  about: string;
  staleness: number;
  rules: Rules;
  /** Whether a run file can say it: the others are simulated alone. */
  runs: boolean;
};

const QUORUM = 6;

/** Groups counted as rule 10 has it, a group's age by its plan: what the run's workflow and activities do by themselves. */
const counted: Partial<Rules> = { ageOf: 'group', endsStale: 'untaken groups', holds: 'groups', maxConcurrentGroups: Number.POSITIVE_INFINITY };
/** What the simulation found to come nearest to the bound. */
const best: Partial<Rules> = { stragglers: 'carry_over', quorum: QUORUM, count: 'trials', lastCall: 2, maxConcurrentGroups: Number.POSITIVE_INFINITY };

const onPolicy: [string, string, Partial<Rules>][] = [
  ['synchronous', 'waits for every trial, to the deadline', {}],
  ['synchronous, no deadline', 'waits for every trial', { deadline: Number.POSITIVE_INFINITY }],
  ['cancel', `a group ends at ${QUORUM} of 8, its others are cut`, { stragglers: 'cancel', quorum: QUORUM }],
  ['over-sampling', '10 trials a group, the first 8 are used', { overSampling: 2 }],
];

const asynchronous: [string, string, Partial<Rules>][] = [
  ['wait', 'a step waits for what it alone could use', { ...counted, stragglers: 'wait', patience: Number.POSITIVE_INFINITY }],
  ['cancel', `a group ends at ${QUORUM} of 8, its others are cut`, { ...counted, stragglers: 'cancel', quorum: QUORUM }],
  ['carry-over, by groups', 'stale stragglers of a group that was taken run on; a group is as old as its plan', { ...counted, stragglers: 'carry_over', quorum: QUORUM }],
  ['carry-over', 'counted in trials; last call; whatever is stale ends at once', best],
  ['carry-over, fresh starts', 'and free slots wait for a step under way', { ...best, holds: 'trials' }],
  ['carry-over, patience 1', 'and a step waits up to 1 median for what would go stale', { ...best, patience: 1 }],
  ['carry-over, patience 2', '2 medians', { ...best, patience: 2 }],
  ['carry-over, patience 4', '4 medians', { ...best, patience: 4 }],
];

const SAYABLE = new Set(['synchronous', 'cancel', 'over-sampling', 'wait', 'carry-over']);

export function policiesAt(staleness: number): Policy[] {
  const list = staleness === 0 ? onPolicy : asynchronous;
  return list.map(([name, about, rules]) => ({ name, about, staleness, runs: SAYABLE.has(name), rules: { ...synchronous, maxStaleness: staleness, ...rules } }));
}

/** The same as a run file says it; what a run file cannot say is left as the run does it. */
export function settingsOf({ stragglers, quorum, groupSize, overSampling, maxStaleness, groupsPerStep, maxConcurrentGroups }: Rules): Partial<RunConfig> {
  return {
    max_staleness: maxStaleness,
    groups_per_iteration: groupsPerStep,
    group_size: groupSize,
    stragglers,
    over_sampling: overSampling,
    group_quorum: stragglers === 'wait' || overSampling > 0 ? null : quorum,
    max_concurrent_groups: Number.isFinite(maxConcurrentGroups) ? maxConcurrentGroups : null,
  };
}
