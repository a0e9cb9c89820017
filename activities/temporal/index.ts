import type { Deps } from '../deps.ts';
import { awaitClosed } from './await-closed.ts';

/** The activity that waits for other workflows. */
export const temporalActivities = (deps: Deps) => ({
  awaitClosed: awaitClosed(deps),
});
