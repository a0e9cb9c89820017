import type { RunConfig } from '../../core/run-config/run-config.ts';
import { synchronous, type Rules } from './simulate/rules.ts';

export type Policy = {
  name: string;
  about: string;
  staleness: number;
  rules: Rules;
};

const QUORUM = 6;
const carryOver: Partial<Rules> = { stragglers: 'carry_over', quorum: QUORUM, lastCall: 2 };
const early: Partial<Rules> = { ...carryOver, quorum: 4 };

const onPolicy: [string, string, Partial<Rules>][] = [
  ['synchronous', 'waits for every trial, to the deadline', {}],
  ['synchronous, no deadline', 'waits for every trial', { deadline: Number.POSITIVE_INFINITY }],
  ['cancel', `a group ends at ${QUORUM} of 8, its others are cut`, { stragglers: 'cancel', quorum: QUORUM }],
  ['over-sampling', '10 trials a group, the first 8 are used', { overSampling: 2 }],
];

const asynchronous: [string, string, Partial<Rules>][] = [
  ['wait', 'a step waits for what it alone could use', { maxStaleStragglers: 0 }],
  ['cancel', `a group ends at ${QUORUM} of 8, its others are cut`, { stragglers: 'cancel', quorum: QUORUM }],
  [
    'carry-over',
    `a group ends at ${QUORUM} of 8, its others go on; a step is made as soon as there is a batch`,
    carryOver,
  ],
  ['carry-over, early', 'a group ends at 4 of 8', early],
  [
    'carry-over, fresh',
    'and starts only when one of the 64 slots is free',
    { ...early, maxConcurrentTrials: synchronous.slots },
  ],
  [
    'carry-over, patient',
    'and a step waits while it would make stale more than 6 running trials and one for each idle slot',
    { ...early, maxConcurrentTrials: synchronous.slots, maxStaleStragglers: 6 },
  ],
];

export function policiesAt(staleness: number): Policy[] {
  const list = staleness === 0 ? onPolicy : asynchronous;
  return list.map(([name, about, rules]) => ({
    name,
    about,
    staleness,
    rules: { ...synchronous, maxStaleness: staleness, ...rules },
  }));
}

/** Returns the rules as settings of a run file. */
export function settingsOf({
  stragglers,
  maxStaleStragglers,
  quorum,
  groupSize,
  overSampling,
  maxStaleness,
  groupsPerStep,
  maxConcurrentGroups,
  maxConcurrentTrials,
}: Rules): Partial<RunConfig> {
  return {
    max_staleness: maxStaleness,
    groups_per_iteration: groupsPerStep,
    group_size: groupSize,
    stragglers,
    max_stale_stragglers:
      stragglers === 'carry_over' && Number.isFinite(maxStaleStragglers) ? maxStaleStragglers : null,
    over_sampling: overSampling,
    group_quorum: stragglers === 'wait' || overSampling > 0 ? null : quorum,
    max_concurrent_groups: Number.isFinite(maxConcurrentGroups) ? maxConcurrentGroups : null,
    max_concurrent_trials: Number.isFinite(maxConcurrentTrials) ? maxConcurrentTrials : null,
  };
}
