import type { Deps } from '../deps.ts';
import { followExternalGroup } from './follow-external-group.ts';
import { openExternalTrial } from './open-external-trial.ts';

/** Activities of groups whose agents a program outside runs (`rollouts: external`). */
export const externalActivities = (deps: Deps) => ({
  followExternalGroup: followExternalGroup(deps),
  openExternalTrial: openExternalTrial(deps),
});
