import { randomUUID } from 'node:crypto';
import { gradeRow, NONE_FOR_THIS_ROW } from '../../activities/reward/grade-row.ts';
import { Graders } from '../../activities/reward/graders.ts';
import { createSandbox } from '../../activities/sandbox/create-sandbox.ts';
import { destroySandbox } from '../../activities/sandbox/destroy-sandbox.ts';
import type { Sandbox } from '../../activities/sandbox/empty-sandbox.ts';
import { VerifierError } from '../../activities/sandbox/errors.ts';
import { judgeWork } from '../../activities/sandbox/judge-work.ts';
import { importOnly } from '../../activities/sandbox/load-agent.ts';
import { runAgentProcess } from '../../activities/sandbox/run-agent-process.ts';
import { TrialgateError } from '../../core/errors.ts';
import { theAgent } from './explain-no-reply.ts';
import { prepareTryout, type PreparedTryout, type Tryout, type TryoutPlace } from './try-agent.ts';

const REWARD_ADVICE =
  'If it fails for real replies too, their trials end as verifier_error and nothing is trained. Where the reward expects a form, let it return 0 for a reply without it';

export const NO_CHECK = '--no-check starts the run without a try';

/** Whether there was a file to import, and whether the verifier or reward judged without an error. */
export type TriedWithoutEngine = { isImported: boolean; isJudged: boolean };

/**
 * Tries what needs no engine: imports the file of a function agent in its sandbox, and has the task's verifier or reward judge an empty
 * reply. Opens no trial.
 * @throws TrialgateError `bad_input` with what failed
 */
export async function tryWithoutEngine(
  tryout: Omit<Tryout, 'keep'>,
  place: Omit<TryoutPlace, 'db' | 'secret'>,
  signal: AbortSignal,
): Promise<TriedWithoutEngine> {
  const { home } = place;
  const prepared = await prepareTryout(tryout, place, signal);
  const { task, backend, image, verifier } = prepared;
  place.report(announcement(prepared));
  const key = { trialId: `try-${randomUUID().slice(0, 8)}`, attempt: 1 };
  try {
    const sandbox = await createSandbox({ home, ...key, task, backend, image, signal });
    const isImported = await importAgent(
      prepared,
      { sandbox, trialId: key.trialId, gateway: place.gatewayUrl },
      signal,
    );
    const isJudged = await judgeNothing(prepared, { sandbox, home, report: place.report }, signal);
    return { isImported, isJudged };
  } finally {
    await destroySandbox({ home, ...key, backend, verifier: verifier?.backend });
  }
}

/** Says what is tried, and why no more. */
function announcement({ task, agent }: PreparedTryout): string {
  const ofAgent = importOnly(agent) === null ? 'is not run' : 'is imported and not run';
  const judging =
    task.kind === 'folder'
      ? `the verifier of task ${task.name} judges the untouched task`
      : `the reward of ${task.name} judges an empty reply`;
  return `agent ${agent.name} ${ofAgent}, because no engine can be asked now; ${judging}`;
}

async function importAgent(
  { task, agent, environment, network, backend }: PreparedTryout,
  given: { sandbox: Sandbox; trialId: string; gateway: string },
  signal: AbortSignal,
): Promise<boolean> {
  const importing = importOnly(agent);
  if (importing === null) return false;
  const how = { agent: importing, task, backend, environment, network, apiKey: 'none', model: 'policy', signal };
  const { ending, reason, process } = await runAgentProcess({ ...given, ...how });
  signal.throwIfAborted();
  if (ending === 'done') return true;
  throw new TrialgateError(
    'bad_input',
    `${theAgent(agent.name)} failed when its file was imported: ${reason ?? ending}. ${NO_CHECK}\n${process.stderr.trimEnd()}`,
  );
}

async function judgeNothing(
  { task, backend, image, verifier }: PreparedTryout,
  { sandbox, home, report }: Pick<TryoutPlace, 'home' | 'report'> & { sandbox: Sandbox },
  signal: AbortSignal,
): Promise<boolean> {
  const graders = new Graders(home);
  try {
    if (task.kind === 'folder') await judgeWork({ task, sandbox, ...(verifier ?? { backend, image }), signal });
    else {
      const transcript = [...task.messages, { role: 'assistant', content: '' }];
      await gradeRow(task, { sandbox, transcript, graders }, signal);
    }
    return true;
  } catch (error) {
    if (!(error instanceof VerifierError)) throw error;
    // A reward function may leave an empty reply out.
    if (error.message === NONE_FOR_THIS_ROW) return true;
    const judged = task.kind === 'row' ? 'an empty reply' : 'the untouched task';
    const what = `of ${task.name} failed when it judged ${judged}: ${error.message}`;
    // A reward function may expect a form that an empty reply has not.
    if (task.kind === 'row') {
      report(`WARNING: the reward ${what}\n${REWARD_ADVICE}`);
      return false;
    }
    throw new TrialgateError('bad_input', `the verifier ${what}. ${NO_CHECK}`, { cause: error });
  } finally {
    await graders.close();
  }
}
