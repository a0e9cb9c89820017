import { z } from 'zod';

const count = z.int().min(1);
const fraction = z.number().min(0).max(1);

/** The settings of the run file that the trainer gets (`gpu-workers/trialgate_gpu/settings.py`). */
export const trainerShape = {
  optim: z
    .strictObject({
      lr: z.number().positive().default(3e-5),
      betas: z.tuple([fraction, fraction]).default([0.9, 0.999]),
      eps: z.number().positive().default(1e-8),
      weight_decay: z.number().min(0).default(0),
      clip_grad: z.number().positive().default(1),
    })
    .prefault({}),
  clip_ratio_low: fraction.default(0.2),
  clip_ratio_high: z.number().min(0).default(0.2),
  /** Largest weight of a token that an older policy sampled (truncated importance sampling). */
  rollout_is_threshold: z.number().min(1).default(2),
  loss_agg_mode: z.enum(['token-mean', 'seq-mean-token-mean', 'seq-mean-token-sum-norm']).default('token-mean'),
  norm_adv_by_std_in_grpo: z.boolean().default(true),
  ppo_epochs: count.default(1),
  /** In samples; absent: the whole batch is one optimiser step. */
  ppo_mini_batch_size: count.nullable().default(null),
  /** Weights of named rewards; a name without one counts 1. */
  reward_weights: z.record(z.string(), z.number()).default({}),
  /** Steps in a row that may make no update because a number of theirs was not finite; one more blocks the run. */
  max_skipped_steps: z.int().min(0).default(2),
  /** How many of the newest checkpoints stay on disk. */
  keep_checkpoints: z.int().min(2).default(2),
  seed: z.int().default(0),
};

/** Takes the trainer's settings out of a run's. */
export const trainerSettings = z.object(trainerShape);
