import { resolve } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { isAgentPath } from '../../core/run-config/agent-file.ts';
import { attackTask } from '../attack/attack-task.ts';
import { attackText } from '../attack/attack-text.ts';
import type { Deployment } from '../config/schema.ts';
import { withStore } from './connect.ts';
import { isRunFile, settingsOfTrials, taskPath } from './try-command.ts';

type Options = {
  task: string;
  agent: string;
  run?: string;
  engine?: string;
  keep?: string;
  json?: boolean;
  only?: string;
};

/** Tries attacks on a task and returns what `trialgate try --attack` prints, and whether one pays. Only the settings of a run need a deployment that runs. */
export async function attackCommand(
  deployment: Deployment,
  { task, agent, run, engine, keep, json = false, only }: Options,
  signal: AbortSignal,
): Promise<{ text: string; pays: boolean }> {
  if (engine !== undefined) throw new TrialgateError('bad_input', '--engine: attacks need no engine: leave it out');
  if (keep !== undefined) throw new TrialgateError('bad_input', '--keep: attacks leave nothing to keep: leave it out');
  const config =
    run === undefined || isRunFile(run)
      ? await settingsOfTrials(null, run)
      : await withStore(deployment, (db) => settingsOfTrials(db, run));
  const { home, unsandboxed } = deployment;
  const report = await attackTask(
    {
      task: taskPath(task),
      agent: isAgentPath(agent) ? resolve(agent) : agent,
      config,
      only,
      home,
      unsandboxed,
    },
    signal,
  );
  return { text: json ? JSON.stringify(report, null, 2) : attackText(report), pays: report.pay > 0 };
}
