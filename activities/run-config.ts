import { z } from 'zod';
import { NETWORKS } from './sandbox/network.ts';
import { samplingChoices } from '../store/sampling-choices.ts';
import { teacher, trainerShape } from './batch/trainer-settings.ts';

const seconds = z.number().positive();
const count = z.int().min(1);

/** What becomes of a trial that did not end by itself: its verified reward, reward 0, or not trained on. */
const treatment = z.enum(['score', 'zero', 'mask']);

/**
 * The run file. Keys that verl or TRL also have carry their name and meaning:
 * `max_prompt_length`, `clip_ratio_low`, `loss_agg_mode`, `norm_adv_by_std_in_grpo`, `ppo_epochs`, `reward_weights`.
 */
export const runConfig = z.strictObject({
  /** A Hugging Face folder or name. */
  model: z.string().min(1),
  /** Task folders, or folders of them. */
  tasks: z.array(z.string().min(1)).min(1),
  /** Names under `agents/`. A group's trials share one agent; groups take turns. */
  agents: z.array(z.string().min(1)).min(1).default(['oneshot']),
  /** `gateway` lets agents reach only the gateway. `host` lets them reach all that the host reaches. If it is absent, each agent's file decides. */
  network: z.enum(NETWORKS).nullable().default(null),
  iterations: z.int().min(0),
  groups_per_iteration: count.default(8),
  group_size: z.int().min(2).default(8),
  /** How many steps before a step's starting version the oldest of a sample's trained tokens may have been sampled. 0: on-policy. */
  max_staleness: z.int().min(0).default(0),
  /** Groups that run at once; absent: as many as `max_staleness` allows. */
  max_concurrent_groups: count.nullable().default(null),
  /** Groups start only while fewer trials run; absent: as many as `max_staleness` allows. What waits for a place gets older when weights change. */
  max_concurrent_trials: count.nullable().default(null),
  /** Trials that must have ended before a group counts as ended; absent: all. */
  group_quorum: count.nullable().default(null),
  /** What becomes of the others then: they have until the group's deadline, are cut, or go on and count for a later step. */
  stragglers: z.enum(['wait', 'cancel', 'carry_over']).default('wait'),
  /**
   * With `carry_over`: how many running trials a step may make too old to be used, besides one for each idle place of
   * `max_concurrent_trials`. It waits while there are more; absent: it does not wait.
   */
  max_stale_stragglers: z.int().min(0).nullable().default(null),
  /** Trials started beyond `group_size`: the first `group_size` to end are used. It favours short trials, and no weight mends that. */
  over_sampling: z.int().min(0).default(0),
  /** Dynamic sampling (DAPO, arXiv 2503.14476): groups whose rewards are all equal are replaced, up to so many a batch. */
  filter_groups: z.strictObject({ enable: z.boolean().default(false), max_replaced: z.int().min(0).default(16) }).prefault({}),
  /** A task is left out after so many groups in a row without one valid reward. */
  quarantine_after: count.default(2),
  /** In tokens. A call whose prompt is longer is refused and its trial ends as `truncated`. */
  max_prompt_length: count.default(512),
  /** In tokens, a call. */
  max_response_length: count.default(128),
  /** What a trial may use before it ends as `truncated`, besides its deadline: calls, sampled tokens, seconds from its start. */
  budgets: z.strictObject({ calls: count.optional(), tokens: count.optional(), seconds: seconds.optional(), bytes: count.optional() }).prefault({}),
  /** The handling of a forced tool or a schema in an agent's request: the engine's grammar, whose calls train only with its mask, or a hint in the prompt. */
  constrained_decoding: z.enum(['enforce', 'hint']).default('enforce'),
  /** Variables of the model's chat template, such as `enable_thinking`. They override the agent's. */
  chat_template_kwargs: z.record(z.string(), z.unknown()).optional(),
  /** A number is forced on every call, `default: number` holds where the agent does not choose, `agent` leaves it to it. */
  sampling: samplingChoices
    .omit({ max_tokens: true, constrained_decoding: true, chat_template_kwargs: true })
    .refine(({ temperature }) => temperature !== 0, 'nothing that was sampled at temperature 0 can be trained on: choose a higher one')
    .prefault({}),
  ...trainerShape,
  /** On-policy distillation, or KL to a reference. */
  teacher: teacher.nullable().default(null),
  truncated: treatment.default('score'),
  agent_error: treatment.default('score'),
  /** How often a trial may start anew after failures that are not its own. */
  max_attempts: count.default(4),
  deadlines: z
    .strictObject({ trial: seconds.default(600), group: seconds.default(1800), iteration: seconds.default(7200), train: seconds.default(21600) })
    .prefault({}),
  evaluation: z
    .strictObject({
      tasks: z.array(z.string().min(1)).default([]),
      /** Trials a task. */
      samples: count.default(16),
      /** Before the first iteration. */
      before: z.boolean().default(true),
      /** Before each iteration whose number is a multiple of it; absent: never. */
      every: count.nullable().default(null),
      /** After the last one. */
      after: z.boolean().default(true),
    })
    .prefault({}),
  /** Engines that already run; empty: the deployment's own. */
  engines: z.array(z.string().regex(/^(https?:\/\/|unix:\/)/, 'an engine is http://host:port or unix:/path.sock')).default([]),
  /** How many replicas must confirm a publication; absent: all. */
  min_replicas: count.nullable().default(null),
}).superRefine((config, context) => {
  const refuse = (path: string, message: string) => context.addIssue({ code: 'custom', path: [path], message });
  if (config.stragglers === 'carry_over' && config.max_staleness === 0) refuse('stragglers', 'carry_over needs max_staleness 1 or more: what goes on past its step is older than the next one');
  if (config.max_stale_stragglers !== null && config.stragglers !== 'carry_over') refuse('max_stale_stragglers', 'it bounds what `stragglers: carry_over` may cut');
  if ((config.group_quorum ?? 0) > config.group_size) refuse('group_quorum', `at most the group_size, which is ${config.group_size}`);
  if (config.over_sampling > 0 && config.stragglers === 'carry_over') refuse('over_sampling', 'it cuts what `stragglers: carry_over` lets go on');
  if (config.teacher !== null) {
    if (config.objective === 'gspo') refuse('objective', 'gspo has one advantage a sequence, and a `teacher` gives each token its own: choose another');
    // The teacher answers for its full distribution at temperature 1, so the policy must sample from its own.
    for (const [name, neutral] of [['temperature', 1], ['top_p', 1], ['top_k', -1], ['min_p', 0]] as const) {
      if ((config.sampling[name] ?? neutral) !== neutral) refuse('sampling', `with a \`teacher\`, ${name} is ${neutral}: it is compared with the policy's own probabilities`);
    }
  }
  if (config.over_sampling > 0 && config.group_quorum !== null) refuse('group_quorum', 'with over_sampling the quorum is the group_size');
});

export type RunConfig = z.output<typeof runConfig>;
