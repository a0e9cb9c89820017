import type { Deps } from '../../../activities/deps.ts';
import {
  createActivities,
  type GeneralActivities,
  type HostActivities,
  type SandboxActivities,
} from '../../../activities/index.ts';

export type AllActivities = GeneralActivities & SandboxActivities & HostActivities;

/** Returns every activity in one object, for tests that call activities themselves and have one worker for all queues. */
export function allActivities(deps: Deps): AllActivities {
  const { general, sandbox, host } = createActivities(deps);
  return { ...general, ...sandbox, ...host };
}
