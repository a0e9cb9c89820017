import { TrialgateError } from '../../core/errors.ts';
import { connectionsOf } from '../config/connections.ts';
import type { Deployment } from '../config/schema.ts';
import { table } from '../show/table.ts';
import { explainTrial, type ProgramView, type TrialView } from './explain-trial.ts';
import { isRunFile, settingsOfTrials, taskAndAgent } from './try-command.ts';

type Options = { task: string; agent: string; run?: string; engine?: string; keep?: string; json?: boolean };

/** Returns what `trialgate try --explain` prints. */
export async function explainCommand(deployment: Deployment, options: Options, signal: AbortSignal): Promise<string> {
  const { run, engine, keep, json } = options;
  if (engine !== undefined || keep !== undefined)
    throw new TrialgateError(
      'bad_input',
      `--explain runs nothing: remove ${engine === undefined ? '--keep' : '--engine'}`,
    );
  if (run !== undefined && !isRunFile(run))
    throw new TrialgateError('bad_input', `--run: with --explain it is a run file, and there is no file ${run}`);
  const { home, unsandboxed } = deployment;
  const { gatewayUrl } = connectionsOf(deployment);
  const report = (line: string): void => console.error(line);
  const tryout = { ...taskAndAgent(options), config: await settingsOfTrials(null, run) };
  const view = await explainTrial(tryout, { home, gatewayUrl, unsandboxed, report }, signal);
  return json ? JSON.stringify(view, null, 2) : explanation(view);
}

export function explanation({ task, agent, agentSandbox, verifierSandbox }: TrialView): string {
  const verifier =
    verifierSandbox === null
      ? ['A verifier has no sandbox here: reward functions judge a row, in processes of their own.']
      : [`THE VERIFIER of ${task}`, '', ...program(verifierSandbox)];
  return [`THE AGENT ${agent} on ${task}`, '', ...program(agentSandbox), '', ...verifier].join('\n');
}

function program(view: ProgramView): string[] {
  const { kind, statement, image, user, network, folder, isWarm, mounts, own, env, limits } = view;
  const start = isWarm
    ? ', as a fork of a process that has imported its module, if nothing prevents that (with its socket in /run/trialgate)'
    : '';
  return [
    `kind: ${kind}. ${statement}`,
    `image: ${image ?? "none, it has this machine's programs"}`,
    `user: ${user}`,
    `network: ${network.kind}, which reaches ${network.reaches}`,
    `starts in: ${folder}${start}`,
    '',
    table(
      ['files of this machine', 'inside', 'access'],
      mounts.map(({ host, inside, writable }) => [host, inside, writable ? 'writable' : 'read-only']),
    ),
    '',
    table(
      ['made for it alone', 'what'],
      own.map(({ inside, what }) => [inside, what]),
    ),
    '',
    table(
      ['variable', 'value'],
      Object.entries(env).map(([name, value]) => [name, JSON.stringify(value)]),
    ),
    '',
    table(
      ['limit', 'value', 'held by'],
      limits.map(({ name, value, heldBy }) => [name, value, heldBy === 'kernel' ? 'the kernel' : 'counted']),
    ),
  ];
}
