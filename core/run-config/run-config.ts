import { isForRuns, MIXED_ENGINES, NOT_IN_RUNS } from '../engine-url.ts';
import { z } from 'zod';
import { agentNetwork } from '../networks.ts';
import { agentEntry, agentLabels, isInlineAgent } from './agent-file.ts';
import { loggerList } from './loggers.ts';
import { reward } from './reward.ts';
import { ROLLOUTS } from './rollouts.ts';
import { isRows, rowsLabel, taskSource, type RowsSource } from './task-source.ts';
import { sandboxSetting } from './sandbox.ts';
import { keepThinking, samplingChoices } from '../sampling-choices.ts';
import { teacher, trainerServer, trainerShape } from './trainer-settings.ts';

const seconds = z.number().positive();
const count = z.int().min(1);
// A worker holds a list of all groups of an iteration, and one of all trials of a group.
const MOST_GROUPS = 100_000;
const MOST_TRIALS = 10_000;
/** The history of a run's workflow has room for the polls of about five days in one iteration. */
const MOST_EXTERNAL_SECONDS = 345_600;

/** The treatment of a trial that did not end by itself: its verified reward, reward 0, or not trained on. */
const treatment = z.enum(['score', 'zero', 'mask']);

/**
 * The run file. Keys that verl or TRL also have, such as `max_prompt_length`, `clip_ratio_low`, `loss_agg_mode`,
 * `norm_adv_by_std_in_grpo`, `ppo_epochs` and `reward_weights`, have their name and meaning.
 */
export const runConfig = z
  .strictObject({
    /** A Hugging Face folder or name. */
    model: z.string().min(1),
    /** `external`: a program outside claims the groups, runs its agents where it lives, and reports their rewards. */
    rollouts: z.enum(ROLLOUTS).default('sandboxes'),
    /** Task folders, folders of them, or rows of data. With `rollouts: external` the program names its tasks. */
    tasks: z.array(taskSource).default([]),
    /** The reward of rows: a Python function, a bundled one, or several by name. Task folders have their own tests. */
    reward: reward.nullable().default(null),
    /** Bundled agents by name, agents' files by path, or agents themselves. A group's trials share one agent; groups take turns. */
    agents: z.array(agentEntry).min(1).default(['oneshot']),
    /**
     * `gateway` lets agents reach only the gateway. A list of hosts lets them reach these too, through the egress proxy. `host` lets them
     * reach all that the host reaches. If it is absent, each agent's file decides.
     */
    network: agentNetwork.nullable().default(null),
    /** The sandbox of agents: `bubblewrap` has this machine's programs, `container` those of an image (Docker, podman). */
    sandbox: sandboxSetting.default({ kind: 'bubblewrap' }),
    /** The sandbox in which work is verified; absent: one of the agent's kind. */
    verifier_sandbox: sandboxSetting.nullable().default(null),
    iterations: z.int().min(0),
    groups_per_iteration: count.max(MOST_GROUPS).default(8),
    group_size: z.int().min(2).max(MOST_TRIALS).default(8),
    /** The most steps between a step's starting version and the version that sampled the oldest trained token of a sample. 0 is on-policy. */
    max_staleness: z.int().min(0).default(0),
    /** The most groups that run at the same time; absent: as many as `max_staleness` allows. */
    max_concurrent_groups: count.nullable().default(null),
    /** Groups start only while fewer trials run; absent: as many as `max_staleness` allows. A trial that waits for a slot gets older when weights change. */
    max_concurrent_trials: count.nullable().default(null),
    /** The trials that must have ended before a group counts as ended; absent: all. */
    group_quorum: count.nullable().default(null),
    /** The treatment of the other trials then: they have until the group's deadline, are cut, or go on and count for a later step. */
    stragglers: z.enum(['wait', 'cancel', 'carry_over']).default('wait'),
    /**
     * With `carry_over`: the most running trials that a step may make too old to be used, besides one for each idle slot of
     * `max_concurrent_trials`. The step waits while there are more; absent: it does not wait.
     */
    max_stale_stragglers: z.int().min(0).nullable().default(null),
    /** The trials that are started beyond `group_size`; the first `group_size` to end are used. This favors short trials, and no weight corrects that. */
    over_sampling: z.int().min(0).max(MOST_TRIALS).default(0),
    /** Dynamic sampling (DAPO, arXiv 2503.14476): groups whose rewards are all equal are replaced, at most `max_replaced` for each batch. */
    filter_groups: z
      .strictObject({ enable: z.boolean().default(false), max_replaced: z.int().min(0).max(MOST_GROUPS).default(16) })
      .prefault({}),
    /** A task is left out after so many groups in a row without a valid reward. */
    quarantine_after: count.default(2),
    /** In tokens. A call whose prompt is longer is refused and its trial ends as `truncated`. */
    max_prompt_length: count.default(512),
    /** In tokens, for each call. */
    max_response_length: count.default(128),
    /** Limits of a trial in addition to its deadline: calls, sampled tokens, seconds from its start, stored bytes. A trial that reaches one ends as `truncated`. */
    budgets: z
      .strictObject({
        calls: count.optional(),
        tokens: count.optional(),
        seconds: seconds.optional(),
        bytes: count.optional(),
      })
      .prefault({}),
    /** The handling of a forced tool or a schema in an agent's request: the engine's grammar, whose calls train only with its mask, or a hint in the prompt. */
    constrained_decoding: z.enum(['enforce', 'hint']).default('enforce'),
    /** Whether the thinking of earlier replies stays in a prompt, whatever clients send back: as the chat template has it, always, or never. */
    keep_thinking: keepThinking.default('as_template'),
    /** Variables of the model's chat template, such as `enable_thinking`. They override the agent's. */
    chat_template_kwargs: z.record(z.string(), z.unknown()).optional(),
    /** A number is forced on every call, `default: number` applies where the agent does not choose, and `agent` leaves the choice to the agent. */
    sampling: samplingChoices
      .omit({ max_tokens: true, constrained_decoding: true, keep_thinking: true, chat_template_kwargs: true })
      .refine(
        ({ temperature }) => temperature !== 0,
        'nothing that was sampled at temperature 0 can be trained on: choose a higher one',
      )
      .prefault({}),
    ...trainerShape,
    /** For on-policy distillation, or for KL to a reference model. */
    teacher: teacher.nullable().default(null),
    /** Absent: our own trainer. The server's key is none of a run's settings; the deployment's `trainer_keys` names its place. */
    trainer_server: trainerServer.nullable().default(null),
    truncated: treatment.default('score'),
    timed_out: treatment.default('score'),
    agent_error: treatment.default('score'),
    /** The most attempts of a trial; a next one follows only a failure that is not the trial's own. */
    max_attempts: count.default(4),
    deadlines: z
      .strictObject({
        /** The agent's own time. Its waits for the engine do not count. */
        trial: seconds.default(600),
        /** The most time of an agent with its waits; absent: twice `trial`. */
        trial_at_most: seconds.optional(),
        group: seconds.default(1800),
        iteration: seconds.default(7200),
        train: seconds.default(21600),
      })
      .prefault({}),
    evaluation: z
      .strictObject({
        tasks: z.array(taskSource).default([]),
        /** The trials of each task. */
        samples: count.max(MOST_TRIALS).default(16),
        /** Evaluates before the first iteration. */
        before: z.boolean().default(true),
        /** Evaluates before each iteration whose number is a multiple of this; absent: never. */
        every: count.nullable().default(null),
        /** Evaluates after the last iteration. */
        after: z.boolean().default(true),
      })
      .prefault({}),
    /** A completed run keeps the checkpoints of its best and its last version and those of `keep_interval`, or all that `keep_checkpoints` left. */
    keep_checkpoints_at_end: z.enum(['best_and_last', 'all']).default('best_and_last'),
    /** The URLs of engines that already run; empty: the deployment's own. Those that cannot be trained (`isForRuns`) only where nothing is. */
    engines: z
      .array(z.string().regex(/^([a-z]+\+|https?:\/\/|unix:\/)/, 'an engine is http://host:port or unix:/path.sock'))
      .default([]),
    /** The number of replicas that must confirm a publication; absent: all. */
    min_replicas: count.nullable().default(null),
    /** The way in which weights travel to the engines. `auto` asks each engine: an engine that was started with gloo receives them, any other engine reads the folder. */
    weight_broadcast: z
      .strictObject({
        type: z.enum(['auto', 'filesystem', 'gloo', 'nccl']).default('auto'),
        /** In seconds, for each request of a transfer. One slow request in each of two transfers fits into the time of a publication. */
        timeout: z.number().positive().max(800).default(600),
      })
      .prefault({}),
    /** In seconds. A run that is blocked for longer releases its engines for other runs; one that has published nothing releases them at once. */
    release_engines_after: z.number().min(0).max(31_536_000).default(600),
    /** The loggers that get the run's metrics besides the record: TensorBoard, mlflow and others. */
    loggers: loggerList.default([]),
  })
  .superRefine((config, context) => {
    const refuse = (path: string, message: string) => context.addIssue({ code: 'custom', path: [path], message });
    const isMixed = config.iterations === 0 && config.engines.some(isForRuns);
    for (const [index, url] of config.engines.entries()) {
      if (isForRuns(url) || isEvaluatedAsServed(config)) continue;
      context.addIssue({ code: 'custom', path: ['engines', index], message: isMixed ? MIXED_ENGINES : NOT_IN_RUNS });
    }
    const labels = agentLabels(config.agents);
    for (const [index, label] of labels.entries())
      if (isInlineAgent(label) && labels.indexOf(label) < index)
        refuse(
          'agents',
          `two agents in this list have the name ${label.slice(label.indexOf(':') + 1)}: give each its own`,
        );
    if (config.rollouts === 'external') {
      if (config.tasks.length > 0)
        refuse('tasks', 'with `rollouts: external` your program names the task of each group: remove `tasks`');
      if (config.deadlines.iteration > MOST_EXTERNAL_SECONDS)
        refuse('deadlines.iteration', `with \`rollouts: external\` at most ${MOST_EXTERNAL_SECONDS} s, four days`);
      if (config.over_sampling > 0)
        refuse('over_sampling', 'with `rollouts: external` every trial of a group is claimed: remove `over_sampling`');
    } else if (config.tasks.length === 0)
      refuse(
        'tasks',
        'name at least one task folder or rows of data, or take groups from your program with `rollouts: external`',
      );
    for (const [where, sources] of [
      ['tasks', config.tasks],
      ['evaluation.tasks', config.evaluation.tasks],
    ] as const) {
      const rows = sources.filter(isRows);
      for (const [index, source] of rows.entries())
        if (rows.findIndex((each) => rowsLabel(each) === rowsLabel(source)) < index)
          refuse(where, `the rows ${rowsLabel(source)} are named twice: name them once`);
      if (config.reward === null && rows.some((source) => source.reward === undefined))
        refuse(
          where,
          'rows need a `reward`: a Python function such as `grade.py:score`, or a bundled one such as `exact_match`',
        );
    }
    for (const source of config.tasks.filter(isRows))
      for (const other of config.evaluation.tasks.filter(isRows))
        if (rowsLabel(source) === rowsLabel(other) && !isSameTask(source, other))
          refuse(
            'evaluation.tasks',
            `the rows ${rowsLabel(source)} have another prompt, reward, limit or columns than under \`tasks\`: make them equal`,
          );
    if (config.stragglers === 'carry_over' && config.max_staleness === 0)
      refuse(
        'stragglers',
        'carry_over needs max_staleness 1 or more: what goes on past its step is older than the next one',
      );
    if (config.max_stale_stragglers !== null && config.stragglers !== 'carry_over')
      refuse('max_stale_stragglers', 'it bounds what `stragglers: carry_over` may cut');
    if ((config.group_quorum ?? 0) > config.group_size)
      refuse('group_quorum', `at most the group_size, which is ${config.group_size}`);
    if (config.over_sampling > 0 && config.stragglers === 'carry_over')
      refuse('over_sampling', 'it cuts what `stragglers: carry_over` lets go on');
    if (config.teacher !== null) {
      if (config.objective === 'gspo')
        refuse(
          'objective',
          'gspo has one advantage a sequence, and a `teacher` gives each token its own: choose another',
        );
    }
    if (config.trainer_server !== null) {
      if (config.lora_rank === 0) refuse('lora_rank', 'a `trainer_server` trains adapters: set a rank, such as 32');
      if (config.target_modules !== 'all-linear')
        refuse('target_modules', 'with a `trainer_server` it is all-linear: leave it out');
      if (config.head_dtype !== 'model') refuse('head_dtype', 'with a `trainer_server` it is model: leave it out');
      if (config.enable_router_replay)
        refuse('enable_router_replay', 'a `trainer_server` replays no experts of an engine: leave it out');
    }
    // A teacher and a trainer server answer for the full distribution at temperature 1, so the policy must sample from its own.
    const judge = config.teacher !== null ? 'teacher' : config.trainer_server !== null ? 'trainer_server' : null;
    if (judge !== null)
      for (const [name, neutral] of [
        ['temperature', 1],
        ['top_p', 1],
        ['top_k', -1],
        ['min_p', 0],
      ] as const) {
        if ((config.sampling[name] ?? neutral) !== neutral)
          refuse(
            'sampling',
            `with a \`${judge}\`, ${name} is ${neutral}: it is compared with the policy's own probabilities`,
          );
      }
    if (config.lora_rank > 0 && ['gloo', 'nccl'].includes(config.weight_broadcast.type))
      refuse('weight_broadcast.type', 'engines load LoRA adapters from the shared folder only: leave it out');
    if (config.over_sampling > 0 && config.group_quorum !== null)
      refuse('group_quorum', 'with over_sampling the quorum is the group_size');
  });

export type RunConfig = z.output<typeof runConfig>;

/**
 * True for a run that trains nothing and whose engines take no weights: servers of OpenAI's completions. Its tasks are evaluated with the
 * model that these serve, and nothing is published.
 */
export const isEvaluatedAsServed = ({ engines, iterations }: { engines: string[]; iterations: number }): boolean =>
  iterations === 0 && engines.length > 0 && !engines.some(isForRuns);

/** True when two entries that name the same rows make the same tasks of them. */
export const isSameTask = (a: RowsSource, b: RowsSource): boolean =>
  JSON.stringify([a.prompt, a.reward, a.limit, a.columns]) === JSON.stringify([b.prompt, b.reward, b.limit, b.columns]);
