import type { Deps } from '../deps.ts';
import { closeTake } from './close-take.ts';
import { listRunningGroups } from './list-running-groups.ts';
import { openTake } from './open-take.ts';
import { recordBase, recordVersion } from './record-version.ts';

/** Activities of an iteration: its takes, and the versions that come out of it. */
export const iterationActivities = (deps: Deps) => ({
  closeTake: closeTake(deps),
  listRunningGroups: listRunningGroups(deps),
  openTake: openTake(deps),
  recordBase: recordBase(deps),
  recordVersion: recordVersion(deps),
});
