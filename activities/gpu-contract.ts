import type { Canary } from '../store/tables/policy-versions.ts';
import type { RunConfig } from './run-config.ts';

/** The Python activities of `gpu-workers/`, as workflows call them. One JSON object in, one out. */
export type GpuActivities = {
  loadBase(input: LoadBaseInput): Promise<Checkpoint>;
  trainStep(input: TrainStepInput): Promise<TrainStepResult>;
  publishPolicy(input: PublishInput): Promise<{ replicas: ReplicaReport[] }>;
};

export type LoadBaseInput = { run_id: string; model: string; home: string };

export type Checkpoint = {
  checkpoint: string;
  checkpoint_sha256: string;
  canary: Canary;
  metrics: Record<string, number>;
};

export type TrainStepInput = {
  run_id: string;
  version: number;
  parent_checkpoint: string;
  batch_path: string;
  batch_sha256: string;
  home: string;
  trainer: TrainerSettings;
};

export type TrainerSettings = Pick<
  RunConfig,
  | 'optim'
  | 'clip_ratio_low'
  | 'clip_ratio_high'
  | 'norm_adv_by_std_in_grpo'
  | 'loss_agg_mode'
  | 'ppo_epochs'
  | 'ppo_mini_batch_size'
  | 'reward_weights'
  | 'keep_checkpoints'
  | 'seed'
> & {
  /** The divisor of `seq-mean-token-sum-norm`, as in verl. */
  loss_scale_factor: number;
  /** Caps the importance weight of stale tokens, as verl's `rollout_is_threshold`; at least 1. */
  rollout_is_threshold: number;
};

export type TrainStepResult = Checkpoint & { step_key: string; reused: boolean };

export type PublishInput = {
  label: string;
  checkpoint: string;
  checkpoint_sha256: string;
  replicas: string[];
  min_replicas: number;
  canary: Canary;
  /** What was seen at version 0, in nats; null while version 0 itself is published. */
  canary_tolerance: number | null;
  /** What the tensors' checksums are on replicas that confirmed this version earlier; null: there are none. */
  checksum?: string | null;
  previous: { label: string; checkpoint: string; checkpoint_sha256: string; checksums: Record<string, string> } | null;
};

export type ReplicaReport = {
  url: string;
  ok: boolean;
  label: string | null;
  checksum: string | null;
  canary_difference: number | null;
  seconds: number;
  error: string | null;
};
