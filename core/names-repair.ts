/** True when the reason why a run is blocked names the command with which it goes on. */
export const namesRepair = (reason: string | null): boolean => /npx trialgate (resume|redo)/.test(reason ?? '');
