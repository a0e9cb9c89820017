import { existsSync, realpathSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { BUNDLED } from '../../activities/reward/bundled.ts';
import { resolveModel } from '../../activities/run/resolve-paths.ts';
import { TrialgateError } from '../../core/errors.ts';
import { isAgentPath } from '../../core/run-config/agent-file.ts';
import { rewardFunction, rewardFunctions, type RewardFunction } from '../../core/run-config/reward.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { TaskSource } from '../../core/run-config/task-source.ts';
import { REPOSITORY } from '../../core/repository.ts';

export type Known = {
  /** The settings of an earlier run, which somebody started. */
  base: RunConfig | null;
  /** The model of the deployment's own engine. */
  model?: string | undefined;
  /** True where sandboxes confine agents, so that any bundled one may be named; else agents are those of the earlier run. */
  isConfined?: boolean;
};

/** The settings of `evaluation` beside its tasks. */
const FREE_OF_EVALUATION: ReadonlySet<string> = new Set([
  'samples',
  'before',
  'every',
  'after',
] satisfies (keyof RunConfig['evaluation'])[]);

/** The settings that reach nothing of the machine: numbers and choices of the rollout and the trainer. Any other needs an earlier run that has the same. */
export const FREE: ReadonlySet<string> = new Set([
  'rollouts',
  'iterations',
  'groups_per_iteration',
  'group_size',
  'max_staleness',
  'max_concurrent_groups',
  'max_concurrent_trials',
  'group_quorum',
  'stragglers',
  'max_stale_stragglers',
  'over_sampling',
  'filter_groups',
  'quarantine_after',
  'max_prompt_length',
  'max_response_length',
  'budgets',
  'constrained_decoding',
  'keep_thinking',
  'sampling',
  'optim',
  'objective',
  'clip_ratio_low',
  'clip_ratio_high',
  'clip_ratio_c',
  'rollout_is',
  'rollout_is_threshold',
  'rollout_rs',
  'rollout_rs_threshold',
  'loss_agg_mode',
  'loss_scale_factor',
  'head_dtype',
  'norm_adv_by_std_in_grpo',
  'ppo_epochs',
  'ppo_mini_batch_size',
  'reward_weights',
  'max_skipped_steps',
  'keep_checkpoints',
  'keep_interval',
  'save_optimizer_every',
  'keep_trainer_state',
  'lora_rank',
  'lora_alpha',
  'target_modules',
  'enable_router_replay',
  'seed',
  'truncated',
  'timed_out',
  'agent_error',
  'max_attempts',
  'deadlines',
  'keep_checkpoints_at_end',
  'min_replicas',
  'weight_broadcast',
  'release_engines_after',
] satisfies (keyof RunConfig)[]);

/**
 * Refuses settings that came over the network and that reach the machine or run a program, unless they are bundled or the earlier run has the
 * same entry. Whoever holds the admin key should not read files with it, nor run programs.
 * @param config with its paths resolved
 * @throws TrialgateError `bad_input` with the first such setting
 */
export function requireKnownReach(config: RunConfig, known: Known): void {
  const before = known.base === null ? [] : entriesOf(known.base, known);
  const isKnown = ({ field, value }: Entry) => before.some((each) => each.field === field && isSame(each.value, value));
  const refused = entriesOf(config, known).find((entry) => !entry.isFree && !isKnown(entry));
  if (refused)
    throw new TrialgateError(
      'bad_input',
      `${refused.field}: a run file that is sent to the gateway may name only what is bundled or what its earlier run has in the same form: start it once from the command line with "npx trialgate train FILE" where the deployment runs, then the page can start runs like it`,
    );
}

/** A setting, or an entry of one that is a list. */
type Entry = { field: string; value: unknown; isFree: boolean };

function entriesOf(config: RunConfig, { base, model: own, isConfined = false }: Known): Entry[] {
  const { model, tasks, evaluation, agents, reward, network, sandbox, verifier_sandbox: verifier, ...more } = config;
  const { engines, teacher, trainer_server: server, loggers, ...others } = more;
  const { tasks: evaluated, ...ofEvaluation } = evaluation;
  const isFirst = base === null;
  // A bundled agent that runs commands does in its sandbox what its engine answers, and whoever joins an engine chooses that.
  const isClosed = isConfined && (network === null || network === 'gateway') && sandbox.kind === 'bubblewrap';
  const entry = (field: string, value: unknown, isFree: boolean): Entry => ({ field, value, isFree });
  return [
    entry('model', model, own !== undefined && model === resolveModel(own)),
    ...tasks.map((each) => entry('tasks', each, isBundledTask(each))),
    ...evaluated.map((each) => entry('evaluation.tasks', each, isBundledTask(each))),
    ...Object.entries(ofEvaluation).map(([field, value]) =>
      entry(`evaluation.${field}`, value, FREE_OF_EVALUATION.has(field)),
    ),
    ...agents.map((each) => entry('agents', each, isClosed && typeof each === 'string' && !isAgentPath(each))),
    ...rewardsOf(reward).map((each) => entry('reward', each, isBundledReward(each))),
    // Without these settings programs reach more than with those that the earlier run may have.
    entry('network', network, network === 'gateway' || (network === null && isFirst)),
    entry('sandbox', sandbox, sandbox.kind === 'bubblewrap' && isFirst),
    entry('verifier_sandbox', verifier, verifier === null && isFirst),
    entry('engines', engines, engines.length === 0),
    entry('teacher', teacher, teacher === null),
    entry('trainer_server', server, server === null),
    ...loggers.map((each) => entry('loggers', each, false)),
    ...Object.entries(others).map(([field, value]) => entry(field, value, FREE.has(field))),
  ];
}

const rewardsOf = (reward: RunConfig['reward']): RewardFunction[] =>
  reward === null ? [] : Object.values(rewardFunctions(reward));

/** The record has no keys without a value. */
const isSame = (one: unknown, other: unknown): boolean => isDeepStrictEqual(asRecorded(one), asRecorded(other));
const asRecorded = (value: unknown): unknown => JSON.parse(JSON.stringify(value ?? null));

/** True for a bundled reward with its defaults, if it reaches no network. */
const isBundledReward = (given: RewardFunction): boolean =>
  Object.hasOwn(BUNDLED, given.function) &&
  BUNDLED[given.function]?.network === undefined &&
  isSame(given, rewardFunction.parse({ function: given.function }));

/**
 * True for a folder of the bundled tasks that is in none that is hidden, by its name and in reality: a link outside may lead elsewhere when the
 * run reads it.
 */
function isBundledTask(source: TaskSource): boolean {
  if (typeof source !== 'string' && !('folder' in source)) return false;
  const path = typeof source === 'string' ? source : source.folder;
  const bundled = join(REPOSITORY, 'tasks');
  const within = [relative(bundled, path), relative(realOf(bundled), realOf(path))];
  return within.every((each) => each.split('/').every((part) => !part.startsWith('.')));
}

const realOf = (path: string): string => (existsSync(path) ? realpathSync(path) : resolve(path));
