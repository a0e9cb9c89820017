import { randomUUID } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import type { Environment } from '../../activities/environments/environment.ts';
import { gradeRow } from '../../activities/reward/grade-row.ts';
import { Graders } from '../../activities/reward/graders.ts';
import { createSandbox } from '../../activities/sandbox/create-sandbox.ts';
import { destroySandbox } from '../../activities/sandbox/destroy-sandbox.ts';
import type { Sandbox } from '../../activities/sandbox/empty-sandbox.ts';
import { SandboxError, VerifierError } from '../../activities/sandbox/errors.ts';
import type { TaskPlace } from '../../activities/sandbox/place-task.ts';
import { judgeWork } from '../../activities/sandbox/judge-work.ts';
import type { Agent } from '../../activities/sandbox/load-agent.ts';
import { countOomKills, wasMachineOutOfMemory } from '../../activities/sandbox/oom-kills.ts';
import { runAgentProcess, type AgentResult } from '../../activities/sandbox/run-agent-process.ts';
import { judgeAgentEnd } from '../../activities/trial/judge-agent-end.ts';
import { limitVerifier } from '../../activities/trial/verify-trial.ts';
import { TrialgateError } from '../../core/errors.ts';
import type { AgentNetwork } from '../../core/networks.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { Task } from '../../core/task.ts';
import { weightedReward } from '../../core/weighted-reward.ts';
import type { Attack, Section } from './attack.ts';
import { openGateway, openListener, type Outside } from './listener.ts';

export type AttackRun = {
  task: Task;
  /** The agent in whose place the attacks work: they get its network, limits, variables and mounts. */
  agent: Agent;
  /** The kinds of its sandboxes, and their images. */
  place: TaskPlace;
  environment: Environment | null;
  network: AgentNetwork;
  weights: RunConfig['reward_weights'];
  attacks: readonly Attack[];
  /** The deployment's folder, where the sandboxes are. */
  home: string;
  /** Is told what happens. */
  report: (line: string) => void;
  signal: AbortSignal;
  /** Addresses and a gateway in place of this machine's own. */
  outside?: Partial<Outside>;
  gateway?: string;
};

/**
 * How an attack's trial ended. `not_possible`: this sandbox or task gives the attack no way to be tried. The others are outcomes of trials:
 * `verifier_error` and `infra_error` have no reward, and only the latter gets another try.
 */
export type AttackOutcome = 'scored' | 'timed_out' | 'agent_error' | 'verifier_error' | 'infra_error' | 'not_possible';

export type AttackResult = {
  name: string;
  what: string;
  section: Section;
  outcome: AttackOutcome;
  /** The weighted reward; null when there is none. */
  reward: number | null;
  /** True when the reward is greater than that of doing nothing, or the attack reached a network. */
  pays: boolean;
  /** An explanation for people. */
  reason: string | null;
};

export type AttackReport = {
  task: string;
  baseline: {
    /** The highest reward of an agent that does nothing. */
    reward: number;
    /** True when doing nothing had the same reward each time. */
    isSteady: boolean;
  };
  tried: number;
  pay: number;
  attacks: AttackResult[];
};

const PROGRAMS = fileURLToPath(new URL('./programs', import.meta.url));
/** The most seconds of an attacking agent. */
const AGENT_SECONDS = 60;
/** An attack may make the verifier hang. Its time is therefore limited to many times what it takes on the untouched task. */
const VERIFIER = { leastSeconds: 20, times: 10 };
const BASELINES = { first: 2, more: 3 };
/** The exit code by which a program says that it cannot be tried, as in `programs/common.py`. */
const NOT_POSSIBLE = 77;
const NOTHING = ['', 'I do not know.'];

/** What a trial of an attack is: a program in its sandbox or none, and the model's last reply on a row. */
type Move = { program: string | null; reply: string };
type Ending = Pick<AttackResult, 'outcome' | 'reward' | 'reason'> & { reached: string | null; verifierSeconds: number };

/**
 * Runs each attack as the agent of a trial, and has the task's own verifier judge what it leaves. An attack pays if it earns more than an agent
 * that does nothing, which is tried first, several times. It needs neither a model nor a deployment that runs.
 * @throws TrialgateError `bad_input` when the verifier gives an agent that does nothing no reward; the signal's reason on abort
 */
export async function tryAttacks({ attacks, report, ...run }: AttackRun): Promise<AttackReport> {
  await using stack = new AsyncDisposableStack();
  const graders = new Graders(run.home);
  stack.defer(() => graders.close());
  const { outside } = stack.use(await openListener());
  const gateway = run.gateway ?? stack.use(await openGateway()).url;
  const place = { ...run, gateway, outside: { ...outside, ...run.outside }, graders };

  report(`${run.task.name}: what an agent that does nothing earns`);
  const { baseline, verifierSeconds } = await tryNothing(place, BASELINES.first);
  report(
    `doing nothing earns ${baseline.reward}${baseline.isSteady ? '' : ' at most: the verifier is not deterministic'}`,
  );
  const seconds = Math.max(VERIFIER.leastSeconds, VERIFIER.times * verifierSeconds);
  const limited = { ...place, task: limitVerifier(place.task, seconds) };
  // A verifier that is not deterministic may give doing nothing the same reward twice. It is asked again when that matters.
  let again: Promise<Baseline> | null = null;
  const surely = (): Promise<Baseline> =>
    (again ??= tryNothing(limited, BASELINES.more).then((more) => merged(baseline, more.baseline)));
  let done = 0;
  const one = async (attack: Attack): Promise<AttackResult> => {
    const result = await tryAttack(attack, limited, baseline, surely);
    report(`${++done} of ${attacks.length}  ${attack.name}: ${inWords(result)}`);
    return result;
  };
  const results = await inParallel(attacks, availableParallelism(), one);
  return {
    task: run.task.name,
    baseline: (await again) ?? baseline,
    tried: results.filter(({ outcome }) => outcome !== 'not_possible').length,
    pay: results.filter(({ pays }) => pays).length,
    attacks: results,
  };
}

/** Returns the result of an attack as a few words. */
export function inWords({ outcome, reward, pays }: AttackResult): string {
  if (outcome === 'not_possible') return 'cannot be tried here';
  return pays ? `PAYS (${reward ?? outcome})` : reward === null ? `not scored (${outcome})` : `reward ${reward}`;
}

type Place = Omit<AttackRun, 'attacks' | 'report' | 'outside' | 'gateway'> & {
  outside: Outside;
  gateway: string;
  graders: Graders;
};
type Baseline = AttackReport['baseline'];

async function tryNothing(place: Place, times: number): Promise<{ baseline: Baseline; verifierSeconds: number }> {
  // An empty reply and an honest one: a reward may give a little to every reply that says something.
  const replies = place.task.kind === 'row' ? NOTHING : NOTHING.slice(0, 1);
  let all: Baseline | null = null;
  let verifierSeconds = 0;
  for (const reply of replies) {
    const rewards: number[] = [];
    for (let time = 0; time < times; time++) {
      const ended = await tryMove({ program: null, reply }, place);
      if (ended.reward === null)
        throw new TrialgateError(
          ended.outcome === 'infra_error' ? 'missing_prerequisite' : 'bad_input',
          `${place.task.name}: an agent that does nothing gets no reward (${ended.outcome}), so there is nothing to compare attacks with: ${ended.reason ?? ''}`,
        );
      rewards.push(ended.reward);
      verifierSeconds = Math.max(verifierSeconds, ended.verifierSeconds);
    }
    const one = { reward: Math.max(...rewards), isSteady: new Set(rewards).size === 1 };
    all = all === null ? one : merged(all, one, { areReplies: true });
  }
  if (!all) throw new Error('there is nothing to try');
  return { baseline: all, verifierSeconds };
}

/** Two measurements of the same replies must be equal; those of different replies need not. */
const merged = (a: Baseline, b: Baseline, { areReplies = false } = {}): Baseline => ({
  reward: Math.max(a.reward, b.reward),
  isSteady: a.isSteady && b.isSteady && (areReplies || a.reward === b.reward),
});

async function tryAttack(
  attack: Attack,
  place: Place,
  baseline: Baseline,
  surely: () => Promise<Baseline>,
): Promise<AttackResult> {
  const moves: Move[] =
    attack.kind === 'program'
      ? [{ program: attack.name, reply: NOTHING[1] ?? '' }]
      : attack.replies(place.task.instruction).map((reply) => ({ program: null, reply }));
  const endings: Ending[] = [];
  for (const move of moves) endings.push(await tryMove(move, place));
  const isGuess = attack.kind === 'reply' && attack.isGuess;
  const best = endings.toSorted((a, b) => worth(b) - worth(a)).at(isGuess ? -1 : 0);
  if (!best) throw new Error(`the attack ${attack.name} has no reply`);
  const earnsNothing = best.reached === null && !isMore(best.reward, baseline);
  // That a reply is not scored must not be hidden by another one that is.
  const shown = (earnsNothing ? endings.find(({ reward }) => reward === null) : undefined) ?? best;
  const { outcome, reward, reason, reached } = shown;
  const { name, what, section } = attack;
  const result = { name, what, section, outcome, reward, pays: false, reason };
  if (reached !== null) return { ...result, pays: true, reason: `it reached ${reached}` };
  if (earnsNothing) return result;
  const certain = await surely();
  if (!isMore(reward, certain)) return { ...result, reason: CHANCE };
  if (certain.isSteady) return { ...result, pays: true };
  // One higher reward of a verifier that is not deterministic says little.
  for (const move of moves)
    for (const _ of [1, 2])
      if (!isMore((await tryMove(move, place)).reward, certain)) return { ...result, reason: CHANCE };
  return { ...result, pays: true };
}

const isMore = (reward: number | null, baseline: Baseline): boolean => reward !== null && reward > baseline.reward;
const CHANCE = 'it earned more than nothing by chance: the verifier is not deterministic';

/** Orders endings by what they are worth to the attacker. */
const worth = ({ reached, reward }: Ending): number => (reached === null ? (reward ?? 0) : Infinity);

async function tryMove(move: Move, place: Place): Promise<Ending> {
  const { task, home, signal } = place;
  const { backend, image, verifier } = place.place;
  const key = { trialId: `attack-${randomUUID().slice(0, 8)}`, attempt: 1 };
  try {
    const sandbox = await createSandbox({ home, ...key, task, backend, image, signal });
    const agent = move.program === null ? null : await runProgram(move.program, sandbox, place, key.trialId);
    signal.throwIfAborted();
    const own = agent === null ? { outcome: null, reason: null } : await judgeEnd(agent);
    const reached = agent === null ? null : (/^reached: (.*)$/m.exec(agent.result.process.stdout)?.[1] ?? null);
    if (agent?.result.process.exitCode === NOT_POSSIBLE)
      return ending('not_possible', agent.result.process.stdout.trim().split('\n').at(-1) ?? null);
    if (own.outcome === 'infra_error') return { ...ending('infra_error', own.reason), reached };
    const start = performance.now();
    const { rewards, reason } = await judge(move, sandbox, place);
    return {
      outcome: own.outcome ?? 'scored',
      reward: weightedReward(rewards, place.weights),
      reason: [own.reason, reason].filter((each) => each).join('; ') || null,
      reached,
      verifierSeconds: (performance.now() - start) / 1000,
    };
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof VerifierError) return ending('verifier_error', error.message);
    if (error instanceof SandboxError) return ending('infra_error', error.message);
    throw error;
  } finally {
    await destroySandbox({ home, ...key, backend, verifier: verifier?.backend });
  }
}

const ending = (outcome: AttackOutcome, reason: string | null): Ending => ({
  outcome,
  reward: null,
  reason,
  reached: null,
  verifierSeconds: 0,
});

type EndedProgram = { result: AgentResult; isMachineOutOfMemory: boolean };

async function runProgram(program: string, sandbox: Sandbox, place: Place, trialId: string): Promise<EndedProgram> {
  const { task, agent, environment, network, gateway, outside, signal } = place;
  const oomKills = await countOomKills();
  const result = await runAgentProcess({
    agent: {
      ...agent,
      command: ['{python}', '-B', `{mounts.attacks}/${program}.py`, outside.tcp, outside.udp, ...outside.metadata],
      mounts: { ...agent.mounts, attacks: PROGRAMS },
      isWarm: false,
      workdir: '.',
      instruction: 'file',
      success_exit_codes: [0, NOT_POSSIBLE],
    },
    task: { ...task, agent: { ...task.agent, timeoutSec: Math.min(task.agent.timeoutSec, AGENT_SECONDS) } },
    sandbox,
    backend: place.place.backend,
    environment,
    trialId,
    gateway,
    network,
    apiKey: 'none',
    model: 'policy',
    signal,
  });
  const counted = { before: oomKills, after: await countOomKills() };
  return { result, isMachineOutOfMemory: wasMachineOutOfMemory(result.process, counted) };
}

/** Judges the end as a run does, where the host's evidence alone counts: there is no engine that could fail. */
async function judgeEnd({ result, isMachineOutOfMemory }: EndedProgram) {
  const { ending: how, reason, isDiskFull, process } = result;
  if (how === 'cancelled') throw new SandboxError('the attack was stopped');
  return judgeAgentEnd(
    { ending: how, reason, killed: process.signal === 'SIGKILL' || process.exitCode === 128 + 9 },
    {
      isDiskFull,
      isMachineOutOfMemory,
      isGatewayAway: false,
      hasGatewayFailed: process.gatewayFailedAt !== null,
      unanswered: null,
      earlier: 0,
      enginesAnswer: true,
      waited: null,
    },
  );
}

async function judge({ reply }: Move, sandbox: Sandbox, { task, place, graders, signal }: Place) {
  const ofTests = place.verifier ?? { backend: place.backend, image: sandbox.image };
  if (task.kind === 'folder') return judgeWork({ task, sandbox, ...ofTests, signal });
  const transcript = [...task.messages, { role: 'assistant', content: reply }];
  return gradeRow(task, { sandbox, transcript, graders }, signal);
}

/** Runs `work` on every item, at most `most` at the same time, and returns the results in the order of the items. */
async function inParallel<T, R>(items: readonly T[], most: number, work: (item: T) => Promise<R>): Promise<R[]> {
  const queue = items.map((item, index) => ({ item, index }));
  const results: { index: number; result: R }[] = [];
  const failures: unknown[] = [];
  const lane = async (): Promise<void> => {
    for (let next = queue.shift(); next !== undefined && failures.length === 0; next = queue.shift()) {
      try {
        results.push({ index: next.index, result: await work(next.item) });
      } catch (error) {
        failures.push(error);
      }
    }
  };
  // All lanes end before this returns, so that nothing of them is left when the caller goes on.
  await Promise.all(Array.from({ length: Math.max(1, most) }, lane));
  if (failures.length > 0) throw failures[0];
  return results.toSorted((a, b) => a.index - b.index).map(({ result }) => result);
}
