import { isolation } from '../../activities/sandbox/isolation.ts';
import { listFolder } from '../../activities/tasks/list-tasks.ts';
import { TrialgateError } from '../../core/errors.ts';
import { toolParserAdvice } from '../../core/restart-engine.ts';
import type { AgentEntry } from '../../core/run-config/agent-file.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { SandboxSetting } from '../../core/run-config/sandbox.ts';
import { isRows, rowsLabel, rowTask, type TaskSource } from '../../core/run-config/task-source.ts';
import { readPoolOwner } from '../../store/queries/pool-queue.ts';
import { readTrialRecord, toolNotices } from '../show/trial-transcript.ts';
import { explainNoReply, theAgent } from './explain-no-reply.ts';
import { needsBubblewrap, tryAgent, type TryoutPlace } from './try-agent.ts';
import { sampledIn, slowEngineWarning, speedInWords, type TriedSpeed } from './tried-speed.ts';
import { NO_CHECK, tryWithoutEngine, type TriedWithoutEngine } from './try-without-engine.ts';

/** An agent that still works after this time has shown that it starts. */
const AGENT_SECONDS = 60;

/**
 * Runs one trial of each agent, and one of each source of tasks, before a run starts, so that an agent or a verifier that cannot work is found
 * in a minute. While there is no engine to try them with, does only what needs none. Returns a sentence about the result, or why nothing was
 * tried.
 * @throws TrialgateError `bad_input` when an agent or a verifier failed
 */
export async function tryBeforeStart(config: RunConfig, place: TryoutPlace, signal: AbortSignal): Promise<string> {
  const why = await reasonNotToTry(config, place);
  if (why !== null) return `agents and verifiers were not tried: ${why}`;
  const trials = await pairsOf(config);
  const withoutEngine = await reasonNotToAsk(config, place);
  if (withoutEngine !== null) {
    const found: TriedWithoutEngine[] = [];
    for (const { agent, task } of trials)
      found.push(await tryWithoutEngine({ task, agent, config, agentSeconds: AGENT_SECONDS }, place, signal));
    return `${whatWorks(found)}; agents were not run: ${withoutEngine}`;
  }
  const tried: TriedSpeed[] = [];
  for (const { agent, task } of trials) {
    const id = await tryAgent({ task, agent, config, keep: null, agentSeconds: AGENT_SECONDS }, place, signal);
    tried.push(await requireWorking(id, place));
  }
  const warning = slowEngineWarning(tried, config);
  if (warning !== null) place.report(warning);
  return `agents and verifiers work (${speedInWords(tried)})`;
}

function whatWorks(found: readonly TriedWithoutEngine[]): string {
  const imports = found.some(({ isImported }) => isImported);
  if (found.every(({ isJudged }) => isJudged)) return `verifiers${imports ? ' and imports' : ''} work`;
  return `${imports ? 'imports work; ' : ''}a reward failed for an empty reply, see the warning`;
}

async function reasonNotToTry(config: RunConfig, { unsandboxed }: TryoutPlace): Promise<string | null> {
  const { rollouts, tasks } = config;
  if (rollouts === 'external') return 'your own program runs them';
  if (!unsandboxed && needsBubblewrap(config, tasks.some(isRows)) && (await isolation()).kind !== 'bubblewrap')
    return 'this machine runs no sandboxes';
  return null;
}

/** Says why a try can ask no engine now; null when it can. */
async function reasonNotToAsk({ engines }: RunConfig, { db }: TryoutPlace): Promise<string | null> {
  if (engines.length > 0) return 'the run has its own engines';
  const owner = await readPoolOwner(db);
  return owner === null ? null : `the engines belong to run ${owner} until that ends`;
}

/** Returns trials in which every agent and every source has its turn. */
async function pairsOf({ agents, tasks, sandbox }: RunConfig): Promise<{ agent: AgentEntry; task: string }[]> {
  const firsts = await Promise.all(tasks.map((source) => firstTask(source, sandbox)));
  const count = Math.max(agents.length, firsts.length);
  return Array.from({ length: count }, (_, i) => ({
    agent: agents[i % agents.length],
    task: firsts[i % firsts.length],
  })).flatMap(({ agent, task }) => (agent === undefined || task === undefined ? [] : [{ agent, task }]));
}

async function firstTask(source: TaskSource, sandbox: SandboxSetting): Promise<string> {
  if (isRows(source)) return rowTask(rowsLabel(source), 0);
  const [first = ''] = await listFolder(typeof source === 'string' ? source : source.folder, sandbox);
  return first;
}

/** Requires that a tried trial shows a working agent and verifier, and returns how fast it was. */
async function requireWorking(id: string, { db, report }: TryoutPlace): Promise<TriedSpeed> {
  const trial = await readTrialRecord(db, id);
  const { outcome, reason, agent_name: agent, task, calls: made } = trial;
  const speed = {
    seconds: ((trial.sealedAt ?? new Date()).getTime() - trial.attemptOpenedAt.getTime()) / 1000,
    sampled: sampledIn(made),
  };
  for (const notice of toolNotices(made)) report(`WARNING: ${theAgent(agent)}: ${notice}`);
  if (outcome === 'scored' || outcome === 'truncated') {
    const why = explainNoReply(trial);
    if (why === null) return speed;
    const what = [why, adviceOn(made) ?? 'Nothing can be trained on such a trial', showsAll(id)];
    // A limit of the trial, such as that of its prompt, may end this task alone.
    if (outcome === 'truncated') {
      report(`WARNING: ${what.join('. ')}`);
      return speed;
    }
    throw new TrialgateError('bad_input', what.join('. '));
  }
  // An agent may fail because of the model's reply. Then it still works.
  const wasAnswered = speed.sampled !== null || made.some(({ status }) => status === 'completed');
  if ((outcome === 'agent_error' || outcome === 'timed_out') && wasAnswered) return speed;
  const failed = made.find(({ status, reason: why }) => status === 'failed' && why !== null);
  if (outcome === 'timed_out' && made.length > 0 && !failed)
    throw new TrialgateError(
      'engine_unavailable',
      `the engines gave ${theAgent(agent)} no reply in ${Math.round(speed.seconds)} s, though nothing else of Trialgate asked them. Look at their log ("npx trialgate logs"), at what else uses this machine, and at the dtype ("npx trialgate doctor"); ${NO_CHECK}`,
    );
  const advice = adviceOn(made);
  const what =
    outcome === 'verifier_error'
      ? `the verifier of ${task ?? 'its task'}`
      : failed
        ? `a call of ${theAgent(agent)} (${failed.reason})`
        : theAgent(agent);
  throw new TrialgateError(
    'bad_input',
    `${what} failed when it was tried: ${reason ?? outcome}. ${advice === null ? '' : `${advice}. `}${showsAll(id)}`,
  );
}

const adviceOn = (calls: Parameters<typeof toolParserAdvice>[0][]): string | null =>
  calls.flatMap((call) => toolParserAdvice(call) ?? [])[0] ?? null;

const showsAll = (id: string): string => `"npx trialgate show ${id}" has all that it printed; ${NO_CHECK}`;
