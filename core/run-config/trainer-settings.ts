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
  /** The name of a module in `gpu-workers/trialgate_gpu/objectives/`. A setting that is null has the value of the objective's paper. */
  objective: z.enum(['grpo', 'gspo', 'cispo', 'rloo']).default('grpo'),
  clip_ratio_low: fraction.nullable().default(null),
  clip_ratio_high: z.number().min(0).nullable().default(null),
  /** The largest ratio that counts where the advantage is negative (dual clip). */
  clip_ratio_c: z.number().gt(1).default(3),
  /** Weights each token or each sequence by the trainer's probability divided by the engine's (importance sampling); `none` weights nothing. */
  rollout_is: z.enum(['token', 'sequence', 'none']).default('token'),
  /** The largest such weight (truncated importance sampling). */
  rollout_is_threshold: z.number().min(1).default(2),
  /** Leaves out tokens whose ratio is outside the band (IcePop), or sequences by their geometric mean. */
  rollout_rs: z.enum(['token_k1', 'seq_mean_k1']).nullable().default(null),
  rollout_rs_threshold: z.tuple([fraction, z.number().min(1)]).default([0.5, 2]),
  loss_agg_mode: z.enum(['token-mean', 'seq-mean-token-mean', 'seq-mean-token-sum-norm']).nullable().default(null),
  /** The divisor of `seq-mean-token-sum-norm`, in tokens per trial. Null means the most tokens that a trial may sample. */
  loss_scale_factor: z.number().positive().nullable().default(null),
  /**
   * The dtype in which the output head computes, at the trainer and at the engines: the model's own (bfloat16), or float32 (MiniMax-M1,
   * arXiv 2506.13585). A publication refuses an engine whose head uses another.
   */
  head_dtype: z.enum(['model', 'float32']).default('model'),
  norm_adv_by_std_in_grpo: z.boolean().default(true),
  ppo_epochs: count.default(1),
  /** The size of a mini-batch in trials. If it is absent, the whole batch is one optimiser step. */
  ppo_mini_batch_size: count.nullable().default(null),
  /** The weights of named rewards. A name without a weight counts 1. */
  reward_weights: z.record(z.string(), z.number()).default({}),
  /** The number of consecutive steps that may make no update because a value was not finite. One more such step blocks the run. */
  max_skipped_steps: z.int().min(0).default(2),
  /** The number of newest checkpoints that stay on disk. */
  keep_checkpoints: z.int().min(2).default(2),
  seed: z.int().default(0),
};

/** A model that gives each sampled token a probability (`gpu-workers/trialgate_gpu/teacher.py`). The names are those of verl's `distillation`. */
export const teacher = z.strictObject({
  /** The base URL of its API, as OpenAI's clients take it. */
  url: z.string().regex(/^https?:\/\/[^\s?#]+$/, 'the base URL of an OpenAI-compatible API, such as http://host:8000/v1'),
  /** The name under which it is served. */
  model: z.string().min(1),
  /** The weight of log(teacher / policy) in a token's advantage, beside the rewards. */
  distillation_loss_coef: z.number().positive().default(1),
  /** The largest amount of log(teacher / policy) that counts, in nats. */
  loss_max_clamp: z.number().positive().default(10),
});

const trainerSettings = z.object(trainerShape);
export type TrainerSettings = z.output<typeof trainerSettings>;

type Others = { teacher: z.output<typeof teacher> | null; max_response_length: number; budgets: { calls?: number | undefined; tokens?: number | undefined } };

/** Returns the part of a run's settings that the trainer gets. */
export function trainerSettingsOf(config: TrainerSettings & Others): TrainerSettings & { loss_scale_factor: number; distillation_loss_coef?: number; loss_max_clamp?: number } {
  const { url: _url, model: _model, ...ofTeacher } = config.teacher ?? {};
  return { ...trainerSettings.parse(config), ...ofTeacher, loss_scale_factor: config.loss_scale_factor ?? mostTokens(config) };
}

/** Returns the most tokens that a trial may sample. If nothing limits the number of its calls, this is the limit of one call. */
function mostTokens({ max_response_length: ofCall, budgets: { calls = 1, tokens } }: Others): number {
  return tokens ?? calls * ofCall;
}
