import type { Deps } from '../deps.ts';
import { followExternalGroup } from './follow-external-group.ts';
import { openExternalGroup } from './open-external-group.ts';

/** Activities of groups whose agents a program outside runs (`rollouts: external`). */
export const externalActivities = (deps: Deps) => ({
  followExternalGroup: followExternalGroup(deps),
  openExternalGroup: openExternalGroup(deps),
});
