import type { RunStatus } from './run-types.ts';
import type { Engine } from './types.ts';

export type DeploymentEngine = Engine & {
  /** The policy version of its run that it confirmed last. */
  confirmed: { version: number; at: number } | null;
  /** Why it is out of rotation: its version is being published, or other engines serve that version and it awaits a repair. */
  awaits: 'publication' | 'repair' | null;
  awaits_since: number | null;
  /** Why this process's last call did not take it. */
  trouble: string | null;
  /** What it told this process of itself when a call last came. */
  load: { running: number; waiting: number; kv_use: number | null; kv_tokens: number | null; at: number } | null;
  /** Trials of this process that left it because it was loaded. */
  escapes: number;
  /** Trials of runs under way whose last recorded call it answered. */
  trials: number;
  /** Calls that have been under way for several seconds, at all gateways. */
  long_calls: number;
  longest_call_at: number | null;
};
export type DeploymentRun = {
  run_id: string;
  status: RunStatus;
  reason: string | null;
  waits_for_engines_since: number | null;
  open_groups: number;
  /** With `rollouts: external`: no program has claimed them. They count nowhere else. */
  unclaimed_groups: number;
  /** Trials of open groups that no attempt was opened for: they wait for a slot. */
  unopened_trials: number;
  trials_under_way: number;
  verifying: number;
  between_attempts: number;
  stragglers: number;
  oldest: { trial_id: string; opened_at: number } | null;
};
export type DeploymentHost = {
  host: string;
  /** Attempts that ended there, and those of them that the host lost. */
  attempts: number;
  lost: number;
  last_at: number | null;
  /** Attempts whose sandbox it opens or has now. */
  under_way: number;
  /** Up to 20 of those, the oldest first. */
  sandboxes: { trial_id: string; attempt: number; run_id: string; opened_at: number; verifying: boolean }[];
};
/** Times are in seconds since the epoch. `calls`, `discovery`, `trouble`, `load` and `escapes` are of the gateway process that answers. */
export type Deployment = {
  now: number;
  engines: DeploymentEngine[];
  discovery: {
    found_by: 'list' | 'file' | 'kubernetes' | 'hand';
    engines: number | null;
    failing_since: number | null;
    reason: string | null;
  }[];
  calls: { in_flight: number; wait_for_budget: number; wait_for_room: number };
  runs: DeploymentRun[];
  /** Of the newest iterations and evaluations. */
  hosts: DeploymentHost[];
};
