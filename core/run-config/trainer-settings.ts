import { z } from 'zod';

const count = z.int().min(1);
const fraction = z.number().min(0).max(1);
const tokensOfTrial = z.number().positive();

/**
 * The settings of the run file that the trainer gets: the only place that states their types, bounds, defaults and meanings. After a change,
 * `vitest run --project fast core/run-config/trainer-settings.test.ts -u` writes the schema by which Python checks them
 * (`gpu-workers/trialgate_gpu/trainer_settings.schema.json`) and their table in `docs/run-file.md`.
 */
export const trainerShape = {
  optim: z
    .strictObject({
      lr: z
        .number()
        .positive()
        .nullable()
        .default(null)
        .describe('The learning rate of AdamW (null: 3e-5, and with `lora_rank` 3e-4).'),
      betas: z
        .tuple([fraction, fraction])
        .default([0.9, 0.999])
        .describe('The shares of its running means, of the gradient and of its square, that AdamW keeps at each step.'),
      eps: z.number().positive().default(1e-8).describe('AdamW adds this to the divisor of an update.'),
      weight_decay: z
        .number()
        .min(0)
        .default(0)
        .describe('The weight decay of AdamW, which leaves norms and biases alone.'),
      clip_grad: z
        .number()
        .positive()
        .default(1)
        .describe('A gradient whose norm is larger is scaled down to this norm.'),
    })
    .prefault({}),
  // The name of a module in `gpu-workers/trialgate_gpu/objectives/`.
  objective: z
    .enum(['grpo', 'gspo', 'cispo', 'rloo'])
    .default('grpo')
    .describe(
      'The loss that a step minimizes; where `clip_ratio_low`, `clip_ratio_high` or `loss_agg_mode` is null, the value of the objective’s paper holds.',
    ),
  clip_ratio_low: fraction
    .nullable()
    .default(null)
    .describe(
      'PPO’s clip: a ratio counts at least 1 minus this (null: as the objective’s paper says, 0.2 with `grpo`).',
    ),
  clip_ratio_high: z
    .number()
    .min(0)
    .nullable()
    .default(null)
    .describe('PPO’s clip: a ratio counts at most 1 plus this (null: as the objective’s paper says, 0.2 with `grpo`).'),
  clip_ratio_c: z
    .number()
    .gt(1)
    .default(3)
    .describe(
      'The largest ratio that counts where the advantage is negative (dual clip); at least 1 plus `clip_ratio_high`, except with `cispo`.',
    ),
  rollout_is: z
    .enum(['token', 'sequence', 'none'])
    .default('token')
    .describe(
      'Weights each token, or each sequence, by the trainer’s probability divided by the engine’s (importance sampling); `none` weights nothing.',
    ),
  // A threshold below 1 would also weaken tokens that the starting weights themselves sampled.
  rollout_is_threshold: z
    .number()
    .min(1)
    .default(2)
    .describe('The largest such weight (truncated importance sampling).'),
  rollout_rs: z
    .enum(['token_k1', 'seq_mean_k1'])
    .nullable()
    .default(null)
    .describe(
      'Leaves out what is outside the band `rollout_rs_threshold`: `token_k1` leaves out tokens (IcePop), `seq_mean_k1` sequences by their geometric mean, null nothing.',
    ),
  rollout_rs_threshold: z
    .tuple([fraction, z.number().min(1)])
    .default([0.5, 2])
    .describe('The lowest and the highest ratio that `rollout_rs` keeps.'),
  loss_agg_mode: z
    .enum(['token-mean', 'seq-mean-token-mean', 'seq-mean-token-sum-norm'])
    .nullable()
    .default(null)
    .describe(
      'How the losses of tokens become one, where a “sequence” is a trial (null: as the objective’s paper says, `token-mean` with `grpo`).',
    ),
  loss_scale_factor: tokensOfTrial
    .nullable()
    .default(null)
    .describe(
      'The divisor of `seq-mean-token-sum-norm` (Dr. GRPO’s constant), in tokens of a trial; null: `budgets.tokens`, or `budgets.calls` times `max_response_length`, or that of one call.',
    ),
  head_dtype: z
    .enum(['model', 'float32'])
    .default('model')
    .describe(
      'The number format in which trainer and engines compute the output head: that of all other layers, or float32. Start the engines with the same: our own vLLM by the deployment’s `head_dtype`, others by vLLM’s `--hf-overrides \'{"head_dtype": "float32"}\'`. A run refuses an engine that was started otherwise.',
    ),
  norm_adv_by_std_in_grpo: z
    .boolean()
    .default(true)
    .describe('Divides advantages by the deviation of their group; false is Dr. GRPO.'),
  ppo_epochs: count.default(1).describe('The number of passes over a batch.'),
  ppo_mini_batch_size: count
    .nullable()
    .default(null)
    .describe(
      'The number of trials of an optimizer step; those of a group stay together if they fit (null: the whole batch).',
    ),
  reward_weights: z
    .record(z.string(), z.number())
    .default({})
    .describe('The weights of named rewards; a name without a weight counts 1.'),
  max_skipped_steps: z
    .int()
    .min(0)
    .default(2)
    .describe(
      'How many steps in a row may make no update because a reward, loss, gradient, weight or canary is not finite; one more blocks the run.',
    ),
  keep_checkpoints: z
    .int()
    .min(2)
    .default(2)
    .describe(
      'The number of newest checkpoints that stay on disk while the run goes on, beside that of its best version.',
    ),
  keep_interval: count
    .nullable()
    .default(null)
    .describe(
      'The checkpoint of every version that this number divides stays for good, also when the run has completed, in addition to `keep_checkpoints` and `keep_checkpoints_at_end` (null: none).',
    ),
  save_optimizer_every: count
    .default(1)
    .describe(
      'Of how many steps one has its trainer state written (float32 weights and AdamW’s moments); that of the others is computed again from their batches when it is needed.',
    ),
  keep_trainer_state: z
    .enum(['newest', 'all'])
    .default('newest')
    .describe(
      'Of which checkpoints the trainer’s state stays: that of the newest version (and until the next step begins that of the version before, from which `redo` starts), or that of `all` that stay. A version without it cannot be forked or rescored ([disk](operating.md#disk)).',
    ),
  lora_rank: z
    .int()
    .min(0)
    .default(0)
    .describe('The rank of the LoRA adapter that is trained instead of the model’s own weights; 0 trains all weights.'),
  lora_alpha: z
    .number()
    .positive()
    .default(32)
    .describe('The adapter’s product counts times `lora_alpha` / `lora_rank`.'),
  target_modules: z
    .union([z.literal('all-linear'), z.array(z.string().min(1)).min(1)])
    .default('all-linear')
    .describe(
      'The linear layers that get an adapter, by the ends of their names, such as `[q_proj, v_proj]`; `all-linear` is all of them but the output head, the experts and routers of a mixture, and `kv_b_proj` of a latent attention ([why](training.md#lora)).',
    ),
  // The name of prime-rl. verl's `router_replay.mode: R3` is the same.
  enable_router_replay: z
    .boolean()
    .default(false)
    .describe(
      'In a mixture of experts, computes each token with the experts that the engine chose for it (R3), weighted by the trainer’s own router. The engines must return them ([router replay](training.md#router-replay)).',
    ),
  seed: z.int().default(0).describe('Decides the order of tasks, and of a batch’s samples where a step takes several.'),
};

/** The part of a teacher's settings that the trainer gets. The teacher itself was asked when the batch was made. */
const teacherWeights = {
  distillation_loss_coef: z
    .number()
    .positive()
    .default(1)
    .describe('The weight of log(teacher / policy) in a token’s advantage, beside the rewards.'),
  loss_max_clamp: z
    .number()
    .positive()
    .default(10)
    .describe('The largest amount of log(teacher / policy) that counts, in nats.'),
};

/** A model that gives each sampled token a probability (`gpu-workers/trialgate_gpu/teacher.py`). The names are those of verl's `distillation`. */
export const teacher = z.strictObject({
  url: z
    .string()
    .regex(/^https?:\/\/[^\s?#]+$/, 'the base URL of an OpenAI-compatible API, such as http://host:8000/v1')
    .describe(
      'The base URL of the OpenAI-compatible API (`http://host:8000/v1`, a vLLM) of a model that the policy learns from, token by token.',
    ),
  model: z.string().min(1).describe('The name under which that model is served.'),
  ...teacherWeights,
});

/** A server that speaks Tinker's API and trains in place of our own trainer (`gpu-workers/trialgate_gpu/backends/tinker/`). */
export const trainerServer = z.strictObject({
  url: z
    .string()
    .regex(/^https?:\/\/[^\s?#@]+$/, 'the base URL of a trainer server, such as http://host:8000, without a key')
    .describe(
      'The base URL (`http://host:8000`) of a server that speaks Tinker’s API and trains in place of our own trainer ([trainers.md](trainers.md)).',
    ),
  model: z
    .string()
    .min(1)
    .nullable()
    .default(null)
    .describe('The server’s name for the run’s model (null: `model`, as it stands in the run file).'),
  timeout: z
    .number()
    .positive()
    .default(3600)
    .describe('How many seconds the server may take for one request before the step begins again.'),
});

/** The block of settings that a train step's request has. Python refuses a block that does not match it, and the message names the key. */
export const trainerSettings = z.object({
  ...trainerShape,
  loss_scale_factor: tokensOfTrial.describe('The divisor of `seq-mean-token-sum-norm`, in tokens of a trial.'),
  teacher: z.object(teacherWeights).nullable().describe('Null in a run without a teacher.'),
  trainer_server: trainerServer.nullable().describe('Null in a run with our own trainer.'),
});
export type TrainerSettings = z.output<typeof trainerSettings>;

type OfRunFile = z.output<z.ZodObject<typeof trainerShape>> & {
  teacher: z.output<typeof teacher> | null;
  trainer_server: z.output<typeof trainerServer> | null;
  max_response_length: number;
  max_staleness: number;
  budgets: { calls?: number | undefined; tokens?: number | undefined };
};

/** Returns the part of a run's settings that the trainer gets. */
export function trainerSettingsOf(config: OfRunFile): TrainerSettings {
  return trainerSettings.parse({
    ...config,
    loss_scale_factor: config.loss_scale_factor ?? mostTokens(config),
    keep_checkpoints: Math.max(config.keep_checkpoints, leastCheckpoints(config)),
  });
}

/**
 * Returns how many checkpoints an engine may read. It reads a LoRA adapter again when a call asks for it that others have displaced: one of the
 * versions that calls may still use, or the one that is about to be published.
 */
const leastCheckpoints = ({ lora_rank, max_staleness }: OfRunFile): number => (lora_rank > 0 ? max_staleness + 2 : 0);

/** Returns the most tokens that a trial may sample. If nothing limits the number of its calls, this is the limit of one call. */
function mostTokens({ max_response_length: ofCall, budgets: { calls = 1, tokens } }: OfRunFile): number {
  return tokens ?? calls * ofCall;
}
