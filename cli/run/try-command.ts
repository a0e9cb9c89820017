import { existsSync, statSync } from 'node:fs';
import { resolve } from 'node:path';
import { rewardsOf } from '../../activities/rollout/rewards-of.ts';
import { readRun } from '../../activities/run/read-run.ts';
import { isForRuns } from '../../core/engine-url.ts';
import { TrialgateError } from '../../core/errors.ts';
import { meantPath } from '../../core/nearest-path.ts';
import { isAgentPath } from '../../core/run-config/agent-file.ts';
import { parseRowTask } from '../../core/run-config/task-source.ts';
import { runConfig, type RunConfig } from '../../core/run-config/run-config.ts';
import type { Database } from '../../store/database.ts';
import { readTrainableCalls } from '../../store/queries/read-trainable-calls.ts';
import { buildSamples } from '../../store/samples/build-samples.ts';
import { connectionsOf } from '../config/connections.ts';
import { engineKeysOf } from '../config/engine-keys.ts';
import type { Deployment } from '../config/schema.ts';
import { readTrialRecord, transcript, type TrialRecord } from '../show/trial-transcript.ts';
import { checkEngines } from './check-engines.ts';
import { checkServer } from './check-server.ts';
import { withRunningStore } from './connect.ts';
import { explainNoReply } from './explain-no-reply.ts';
import { readRunFile } from './read-run-file.ts';
import { requireEngineUrl } from './require-engine-url.ts';
import { tryAgent } from './try-agent.ts';
import { withEngine } from './with-engine.ts';

type Options = { task: string; agent: string; run?: string; engine?: string; keep?: string; json?: boolean };

/** What `trialgate try` prints. `failed`: its agent, its verifier, the machine or all of its calls failed, or its time was up. */
export type TryResult = { text: string; failed: boolean };

/** Runs one trial, and returns what `trialgate try` prints. */
export async function tryCommand(deployment: Deployment, options: Options, signal: AbortSignal): Promise<TryResult> {
  const keep = options.keep === undefined ? null : resolve(options.keep);
  if (keep !== null && existsSync(keep))
    throw new TrialgateError('bad_input', `--keep: ${keep} exists already: name a folder that does not`);
  const { engine, run } = options;
  if (engine === undefined) return tryAt(deployment, deployment, { ...options, keep }, signal);
  requireEngineUrl(engine);
  if (run !== undefined && !isRunFile(run))
    throw new TrialgateError(
      'bad_input',
      `--run: with --engine it is a run file, and there is no file ${run}${await meantPath(run)}`,
    );
  const config = await settingsOfTrials(null, run);
  const relay = connectionsOf(deployment);
  if (isForRuns(engine))
    await checkEngines([engine], { ...config, engines: [engine] }, relay, { anyModel: run === undefined });
  else await checkServer(engine, relay, { keys: engineKeysOf(deployment.engine_keys) });
  return withEngine(deployment, engine, signal, (own) => tryAt(own, deployment, { ...options, keep }, signal));
}

/** Runs a trial at the gateway and PostgreSQL of `at`. Sandboxes and packages are in the deployment's own folder. */
async function tryAt(
  at: Deployment,
  { home, unsandboxed }: Deployment,
  { keep, ...options }: Omit<Options, 'keep'> & { keep: string | null },
  signal: AbortSignal,
): Promise<TryResult> {
  const { gatewayUrl, secret } = connectionsOf(at);
  return withRunningStore(at, async (db) => {
    const tryout = {
      ...taskAndAgent(options),
      config: await settingsOfTrials(db, options.run),
      keep,
    };
    const report = (line: string) => console.error(line);
    const trialId = await tryAgent(tryout, { db, gatewayUrl, secret, home, unsandboxed, report }, signal);
    const trial = await readTrialRecord(db, trialId);
    const isScored = trial.outcome === 'scored' || trial.outcome === 'truncated';
    const withoutReply = explainNoReply(trial);
    // An agent that asks nothing may be there to try the task alone.
    const hasAsked = trial.calls.length + trial.refusals.count > 0;
    const failed = !isScored || (withoutReply !== null && hasAsked);
    const isTrained = rewardsOf(trial, tryout.config) !== null;
    const samples = buildSamples(await readTrainableCalls(db, { trialId, attempt: trial.attempt })).map(
      ({ tokenIds, lossMask, callIds }) => ({
        tokens: tokenIds.length,
        trained_tokens: isTrained ? lossMask.reduce((sum, value) => sum + value, 0) : 0,
        calls: callIds.length,
      }),
    );
    if (options.json) return { text: JSON.stringify({ ...trial, samples }, null, 2), failed };
    const none = `none of them trained, because the trial ended as ${trial.outcome}`;
    const lines = samples.map(
      ({ tokens, trained_tokens: trained, calls }, index) =>
        `sample ${index + 1}: ${tokens} tokens, ${isTrained ? `${trained} of them trained` : none}, from ${calls} call(s)`,
    );
    const ofSamples = lines.length > 0 ? lines : [noSample(trial, withoutReply)];
    return { text: [transcript(trial), '', ...ofSamples].join('\n'), failed };
  });
}

/** Says why there is no sample. The transcript before this line has the reason of each call that is not trained. */
function noSample({ calls }: Pick<TrialRecord, 'calls'>, withoutReply: string | null): string {
  if (withoutReply !== null) return `no sample: ${withoutReply}`;
  const other = calls.find(({ engine }) => engine !== null && !isForRuns(engine));
  if (other)
    return `no sample: calls to ${other.engine} cannot be trained on, because this server returns no token ids`;
  return 'no sample: none of its calls can be trained, for the reason above';
}

/** Returns a task and an agent of the command line as `tryAgent` takes them. */
export const taskAndAgent = ({ task, agent }: { task: string; agent: string }): { task: string; agent: string } => ({
  task: taskPath(task),
  agent: isAgentPath(agent) ? resolve(agent) : agent,
});

/** Returns the task with an absolute path. A row of a dataset on the hub has none. */
export function taskPath(task: string): string {
  const isOnHub = parseRowTask(task) !== null && !existsSync(task.slice(0, task.lastIndexOf('#')));
  return isOnHub ? task : resolve(task);
}

/** Returns the settings of a run, of a run file, or the defaults. Only those that concern a trial are used. */
export async function settingsOfTrials(db: Database | null, run: string | undefined): Promise<RunConfig> {
  if (run === undefined) return runConfig.parse({ model: 'policy', tasks: ['none'], iterations: 1 });
  return db === null || isRunFile(run) ? readRunFile(run) : readRun(db, run);
}

/** A run's id may have dots, as a folder's name may. */
export const isRunFile = (run: string): boolean => /[/.]/.test(run) && existsSync(run) && statSync(run).isFile();
