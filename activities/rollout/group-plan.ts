/** The input of a group's workflow. */
export type GroupPlan = {
  /** The id of its workflow and of its row. */
  id: string;
  trialPrefix: string;
  runId: string;
  kind: 'train' | 'eval';
  iteration: number | null;
  take: number | null;
  ordinal: number;
  /** The number of trials: GRPO's G. */
  size: number;
  /** The task's folder. */
  task: string;
  agent: string;
  policyVersion: number;
  /** In ISO 8601; absent for a new group. */
  openedAt?: string;
};
