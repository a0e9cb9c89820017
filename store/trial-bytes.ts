import type { Budgets } from './tables/trials.ts';

/** The storage limit of a trial that sets no budget of bytes: about twenty times as much as long trials of coding agents. */
export const DEFAULT_TRIAL_BYTES = 256 * 2 ** 20;

/** The approximate size of a row beyond its requests, replies and ids, including its part of the indexes. */
export const ROW_BYTES = 1024;

export const bytesBudgetOf = ({ bytes }: Budgets): number => bytes ?? DEFAULT_TRIAL_BYTES;
