/** The settings of runs under faults, used in turns: strictly on-policy, and with weights that change during trials, with stragglers. */
export const SETTINGS: Record<
  string,
  { max_staleness: number; group_quorum?: number; stragglers: 'wait' | 'cancel' | 'carry_over' }
> = {
  'on-policy': { max_staleness: 0, stragglers: 'wait' },
  'carry-over': { max_staleness: 1, group_quorum: 3, stragglers: 'carry_over' },
  cancel: { max_staleness: 1, group_quorum: 3, stragglers: 'cancel' },
};
export type Settings = keyof typeof SETTINGS;

/** True when groups have trials that they do not wait for. */
export const hasStragglers = (settings: Settings): boolean => SETTINGS[settings]?.stragglers !== 'wait';
