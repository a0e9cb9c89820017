import { eq } from 'drizzle-orm';
import { isolation } from '../../activities/sandbox/isolation.ts';
import { listFolder } from '../../activities/tasks/list-tasks.ts';
import { TrialgateError } from '../../core/errors.ts';
import type { AgentEntry } from '../../core/run-config/agent-file.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { TrialNeed } from '../../core/run-config/trials-at-once.ts';
import type { SandboxSetting } from '../../core/run-config/sandbox.ts';
import { isRows, rowsLabel, rowTask, type TaskSource } from '../../core/run-config/task-source.ts';
import { calls, DEPLOYMENT_POOL, replicas } from '../../store/schema.ts';
import { readTrialRecord } from '../show/trial-transcript.ts';
import { fit, needOf } from './fit-to-engine.ts';
import { measureEngine } from './measure-engine.ts';
import { toolParserAdvice } from './restart-engine.ts';
import { needsBubblewrap, tryAgent, type TryoutPlace } from './try-agent.ts';
import { NO_CHECK, tryWithoutEngine } from './try-without-engine.ts';

/** An agent that still works after this time has shown that it starts. */
const AGENT_SECONDS = 60;

/** What the tries showed: sentences for the user, and the most trials that the engines serve in time; null where nothing bounds them. */
export type TryResult = { sentences: string[]; atOnce: number | null };

/**
 * Runs one trial of each agent, and one of each source of tasks, before a run starts, so that an agent or a verifier that cannot work is found
 * in a minute. Then measures the engines, so that slow ones get no more trials at once than they serve in time. While there is no engine to try them
 * with, does only what needs none. Says why, if nothing was tried.
 * @throws TrialgateError `bad_input` when an agent or a verifier failed, `engine_unavailable` when the engines are too slow for a trial
 */
export async function tryBeforeStart(
  config: RunConfig,
  place: TryoutPlace & { mostSandboxes: number },
  signal: AbortSignal,
): Promise<TryResult> {
  const why = await reasonNotToTry(config, place);
  if (why !== null) return { sentences: [`agents and verifiers were not tried: ${why}`], atOnce: null };
  const pairs = await pairsOf(config);
  const withoutEngine = await reasonNotToAsk(config, place);
  if (withoutEngine !== null) {
    let areImported = false;
    for (const { agent, task } of pairs) {
      const tryout = { task, agent, config, agentSeconds: AGENT_SECONDS };
      if (await tryWithoutEngine(tryout, place, signal)) areImported = true;
    }
    const sentence = `verifiers${areImported ? ' and imports' : ''} work; agents were not run: ${withoutEngine}`;
    return { sentences: [sentence], atOnce: null };
  }
  const needs: TrialNeed[] = [];
  for (const { agent, task } of pairs) {
    const id = await tryAgent({ task, agent, config, keep: null, agentSeconds: AGENT_SECONDS }, place, signal);
    await requireWorking(id, place);
    needs.push(await needOf(id, task, config, place));
  }
  const works = `agents and verifiers work (${pairs.length} trial${pairs.length === 1 ? '' : 's'} tried)`;
  const { mostSandboxes: most } = place;
  const speed = await measureEngine(most, config, place, signal);
  const { sentence, atOnce } = fit(speed, needs, { most, chosen: config.max_concurrent_trials });
  return { sentences: sentence === null ? [works] : [works, sentence], atOnce };
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
  const pool = await db.select({ runId: replicas.runId }).from(replicas).where(eq(replicas.pool, DEPLOYMENT_POOL));
  const owner = pool.find(({ runId }) => runId !== null)?.runId;
  return owner === undefined ? null : `the engines belong to run ${owner} until that ends`;
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

async function requireWorking(id: string, { db }: TryoutPlace): Promise<void> {
  const { outcome, reason, agent_name: agent, task } = await readTrialRecord(db, id);
  if (outcome === 'scored' || outcome === 'truncated') return;
  const made = await db
    .select({ status: calls.status, reason: calls.reason, engine: calls.engine })
    .from(calls)
    .where(eq(calls.trialId, id));
  // An agent may fail because of the model's reply. Then it still works.
  if ((outcome === 'agent_error' || outcome === 'timed_out') && made.some(({ status }) => status === 'completed'))
    return;
  const failed = made.find(({ status, reason: why }) => status === 'failed' && why !== null);
  const advice = failed && toolParserAdvice(failed);
  const what =
    outcome === 'verifier_error'
      ? `the verifier of ${task ?? 'its task'}`
      : failed
        ? `a call of the agent ${agent ?? ''} (${failed.reason})`
        : `the agent ${agent ?? ''}`;
  throw new TrialgateError(
    'bad_input',
    `${what} failed when it was tried: ${reason ?? outcome}. ${advice ? `${advice}. ` : ''}"npx trialgate show ${id}" has all that it printed; ${NO_CHECK}`,
  );
}
