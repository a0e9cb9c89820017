import { randomUUID } from 'node:crypto';
import { copyFiles } from '../../activities/sandbox/copy-files.ts';
import { agentEnvironment } from '../../activities/environments/agent-environment.ts';
import { Graders } from '../../activities/reward/graders.ts';
import { requireHidden } from '../../activities/run/require-hidden.ts';
import { createSandbox } from '../../activities/sandbox/create-sandbox.ts';
import type { Sandbox } from '../../activities/sandbox/empty-sandbox.ts';
import { destroySandbox } from '../../activities/sandbox/destroy-sandbox.ts';
import { VerifierError } from '../../activities/sandbox/errors.ts';
import { isolation, requireBubblewrap, type Isolation } from '../../activities/sandbox/isolation.ts';
import { loadAgent, type Agent } from '../../activities/sandbox/load-agent.ts';
import type { SandboxBackend } from '../../activities/sandbox/backend.ts';
import type { VerifierPlace } from '../../activities/sandbox/host-sandboxes.ts';
import { placeTask, requirePackages, type TaskPlace } from '../../activities/sandbox/place-task.ts';
import { reachedNetwork } from '../../activities/sandbox/network.ts';
import { runAgentProcess } from '../../activities/sandbox/run-agent-process.ts';
import { loadTask } from '../../activities/tasks/load-task.ts';
import { cacheOf } from '../../activities/tasks/read-rows.ts';
import { requireNetwork } from '../../activities/tasks/require-network.ts';
import { readRowTask } from '../../activities/tasks/row-task.ts';
import { judgeTrial } from '../../activities/trial/judge-trial.ts';
import { keepOutput } from '../../activities/trial/keep-output.ts';
import { samplingOf } from '../../activities/trial/open-trial.ts';
import { limitVerifier } from '../../activities/trial/verify-trial.ts';
import type { Environment } from '../../activities/environments/environment.ts';
import { attemptKey } from '../../core/keys.ts';
import type { AgentNetwork } from '../../core/networks.ts';
import type { AgentEntry } from '../../core/run-config/agent-file.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { hasImages } from '../../core/run-config/sandbox.ts';
import { parseRowTask } from '../../core/run-config/task-source.ts';
import type { Task } from '../../core/task.ts';
import type { Database } from '../../store/database.ts';
import { completeTrial } from '../../store/queries/complete-trial.ts';
import { findTrial } from '../../store/queries/find-trials.ts';
import { readEngineWait } from '../../store/queries/read-engine-wait.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import type { Outcome } from '../../store/schema.ts';
import { requireOneTask } from './require-one-task.ts';

export type Tryout = {
  /** A task's folder, or a row: `train.jsonl#17`. */
  task: string;
  agent: AgentEntry;
  /** The settings of trials, as in a run file. */
  config: RunConfig;
  /** A folder for a copy of what the agent left; null: nothing is kept. */
  keep: string | null;
  /** The most seconds of the agent, besides the task's limit. */
  agentSeconds?: number;
};

export type TryoutPlace = {
  db: Database;
  gatewayUrl: string;
  secret: string;
  home: string;
  unsandboxed: boolean;
  /** Is told what happens. */
  report: (line: string) => void;
};

const ATTEMPT = 1;

/**
 * Runs one trial outside any run, here and now: the agent in a sandbox, then the verifier. The deployment's gateway records its calls, and its
 * own engines answer them. The trial is sealed at the end, also when it is interrupted. Returns its id.
 * @throws TrialgateError `bad_input` for a wrong task or agent
 */
export async function tryAgent(
  { task: named, agent: entry, config, keep, agentSeconds = Infinity }: Tryout,
  place: TryoutPlace,
  signal: AbortSignal,
): Promise<string> {
  const { db, home, report } = place;
  const { task, agent, environment, network, image, ...kinds } = await prepareTryout(
    { task: named, agent: entry, config, agentSeconds },
    place,
    signal,
  );
  const trialId = `try-${randomUUID().slice(0, 8)}`;
  const key = { trialId, attempt: ATTEMPT };
  await openAttempt(db, {
    ...key,
    task: task.kind === 'folder' ? task.folder : named,
    agent: agent.name,
    sampling: samplingOf(config),
    budgets: { ...config.budgets, prompt_tokens: config.max_prompt_length },
  });
  let sealed: Ending | null = null;
  try {
    report(`trial ${trialId}: agent ${agent.name} on task ${task.name}`);
    const sandbox = await createSandbox({ home, ...key, task, backend: kinds.backend, image, signal });
    sealed = await runAndVerify({ task, agent, environment, sandbox, ...kinds, network }, key, place, signal);
    if (keep !== null) {
      await copyFiles(sandbox.work, keep, { bytes: task.environment.storageMb * 2 ** 20, entries: 100_000 });
      report(`what the agent left is in ${keep}`);
    }
    return trialId;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    sealed ??= { outcome: signal.aborted ? 'cancelled' : 'infra_error', reason };
    throw error;
  } finally {
    await destroySandbox({ home, ...key, backend: kinds.backend, verifier: kinds.verifier?.backend });
    if (sealed) await sealAttempt(db, { ...key, ...sealed, final: true });
  }
}

/** True when a program of a trial runs under bubblewrap on this host: its agent, its verifier, or the reward function of a row. */
export const needsBubblewrap = (
  { sandbox, verifier_sandbox: verifier }: Pick<RunConfig, 'sandbox' | 'verifier_sandbox'>,
  isRow: boolean,
): boolean => isRow || sandbox.kind === 'bubblewrap' || verifier?.kind === 'bubblewrap';

/**
 * Requires bubblewrap where a trial of this task needs it, unless the user allowed to run without.
 * @throws TrialgateError `missing_prerequisite`
 */
export async function requireIsolation(
  { task, config, unsandboxed }: Pick<Tryout, 'task' | 'config'> & Pick<TryoutPlace, 'unsandboxed'>,
  found: () => Promise<Pick<Isolation, 'kind' | 'trouble'>> = isolation,
): Promise<void> {
  if (needsBubblewrap(config, parseRowTask(task) !== null)) requireBubblewrap(await found(), unsandboxed);
}

export type PreparedTryout = TaskPlace & {
  task: Task;
  agent: Agent;
  environment: Environment | null;
  /** What the agent reaches. */
  network: AgentNetwork;
};

/**
 * Finds what a trial needs: its task, its agent with its packages, and the kinds and images of its sandboxes.
 * @throws TrialgateError `bad_input` for a wrong task or agent, `missing_prerequisite` when bubblewrap is needed and missing
 */
export async function prepareTryout(
  { task: named, agent: entry, config, agentSeconds = Infinity }: Omit<Tryout, 'keep'>,
  { home, unsandboxed, report }: Pick<TryoutPlace, 'home' | 'unsandboxed' | 'report'>,
  signal: AbortSignal,
): Promise<PreparedTryout> {
  await requireIsolation({ task: named, config, unsandboxed });
  const [task, agent] = [await findTask(named, config, home), await loadAgent(entry)];
  requireHidden([agent], config, [task]);
  const place = await placeTask(task, config, { home, signal, report });
  const network = requireNetwork(task, agent.name, reachedNetwork(place.backend, config.network ?? agent.network));
  requirePackages(agent, place);
  const environment = await agentEnvironment(agent, { home, signal, report });
  return { ...place, task: within(task, config, agentSeconds), agent, environment, network };
}

type Ending = {
  outcome: Outcome;
  reason?: string;
  rewards?: Record<string, number>;
  turnRewards?: Record<string, number[]>;
};
type Work = {
  task: Task;
  agent: Agent;
  environment: Environment | null;
  sandbox: Sandbox;
  backend: SandboxBackend;
  verifier: VerifierPlace | null;
  network: AgentNetwork;
};

async function runAndVerify(
  { task, agent, environment, sandbox, backend, verifier, network }: Work,
  key: { trialId: string; attempt: number },
  { db, gatewayUrl, secret, home, report }: TryoutPlace,
  signal: AbortSignal,
): Promise<Ending> {
  const result = await runAgentProcess({
    agent,
    task,
    sandbox,
    backend,
    environment,
    trialId: key.trialId,
    gateway: gatewayUrl,
    network,
    apiKey: attemptKey(secret, key.trialId, key.attempt),
    model: 'policy',
    waited: async () => (await readEngineWait(db, key)).seconds,
    signal,
  });
  signal.throwIfAborted();
  await keepOutput(db, { ...key, program: 'agent', ...result.process });
  report(
    `the agent ended after ${result.process.seconds.toFixed(1)} s${result.reason === null ? '' : `: ${result.reason}`}`,
  );
  await completeTrial(db, key);
  const exhausted = (await findTrial(db, key.trialId))?.exhausted;
  const own = exhausted
    ? { outcome: 'truncated' as const, reason: exhausted }
    : result.ending === 'agent_error' || result.ending === 'timed_out'
      ? { outcome: result.ending, reason: result.reason ?? undefined }
      : { outcome: 'scored' as const };
  const graders = new Graders(home);
  try {
    const { rewards, turnRewards, reason } = await judgeTrial(
      { db, graders },
      { ...key, task, sandbox, backend, verifier },
      signal,
    );
    return { reason, ...own, rewards, turnRewards };
  } catch (error) {
    if (!(error instanceof VerifierError)) throw error;
    return { outcome: 'verifier_error', reason: error.message };
  } finally {
    await graders.close();
  }
}

/** Finds a task's folder, or the row of a source that the settings name. */
export async function findTask(named: string, config: RunConfig, home: string): Promise<Task> {
  const row = parseRowTask(named);
  if (row !== null) return readRowTask(named, row, config, cacheOf(home));
  await requireOneTask(named);
  return loadTask(named, { hasImages: hasImages(config.sandbox) });
}

/** Limits agent and verifier to the deadline of a run's trials. */
const within = (task: Task, { deadlines }: RunConfig, agentSeconds: number): Task => ({
  ...limitVerifier(task, deadlines.trial),
  agent: { ...task.agent, timeoutSec: Math.min(task.agent.timeoutSec, deadlines.trial, agentSeconds) },
});
