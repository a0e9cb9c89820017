import type { Deps } from '../deps.ts';
import { assembleBatch } from './assemble-batch.ts';

/** The activity that makes a training batch. */
export const batchActivities = (deps: Deps) => ({
  assembleBatch: assembleBatch(deps),
});
