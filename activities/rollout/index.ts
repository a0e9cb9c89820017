import type { Deps } from '../deps.ts';
import { awaitGroup } from './await-group.ts';
import { endGroup } from './end-group.ts';
import { extendGroup } from './extend-group.ts';
import { openGroup } from './open-group.ts';
import { planGroups } from './plan-groups.ts';

/** Activities of the groups of a run: which may start, and the beginning and end of each. */
export const rolloutActivities = (deps: Deps) => ({
  awaitGroup: awaitGroup(deps),
  endGroup: endGroup(deps),
  extendGroup: extendGroup(deps),
  openGroup: openGroup(deps),
  planGroups: planGroups(deps),
});
