/** What a group's workflow is started with. */
export type GroupPlan = {
  /** Its workflow's id and its row's. */
  id: string;
  trialPrefix: string;
  runId: string;
  kind: 'train' | 'eval';
  iteration: number | null;
  take: number | null;
  ordinal: number;
  /** Trials: G in GRPO. */
  size: number;
  /** The task's folder. */
  task: string;
  agent: string;
  policyVersion: number;
  /** ISO 8601; absent: it is new. */
  openedAt?: string;
};
