import type { Budgets } from './tables/trials.ts';

/** What a trial may store that names no budget of bytes: some twenty times as much as long trials of coding agents. */
export const DEFAULT_TRIAL_BYTES = 256 * 2 ** 20;

/** What a row takes beside its requests, replies and ids, with its part of the indexes; about. */
export const ROW_BYTES = 1024;

export const bytesBudgetOf = ({ bytes }: Budgets): number => bytes ?? DEFAULT_TRIAL_BYTES;
