import type { Task } from '../../core/task.ts';
import type { Database } from '../../store/database.ts';
import { readTranscript } from '../../store/queries/read-transcript.ts';
import type { Output } from '../../store/queries/outputs.ts';
import { gradeRow } from '../reward/grade-row.ts';
import { GradeError } from '../reward/grader.ts';
import type { Graders } from '../reward/graders.ts';
import type { Sandbox } from '../sandbox/create-sandbox.ts';
import { isolation } from '../sandbox/isolation.ts';
import { judgeWork } from '../sandbox/judge-work.ts';
import type { VerifierRewards } from '../sandbox/read-rewards.ts';
import { keepOutput } from './keep-output.ts';

export type Judged = VerifierRewards & { reason?: string };

type Place = { db: Database; graders: Graders };
type Trial = { trialId: string; attempt: number; task: Task; sandbox: Sandbox };

/**
 * Judges the agent's work, by the task's tests or by the row's reward functions, and keeps what they printed.
 * @throws VerifierError and SandboxError as `judgeWork` and `gradeRow` do
 */
export async function judgeTrial({ db, graders }: Place, trial: Trial, signal: AbortSignal): Promise<Judged> {
  const { trialId, attempt, task, sandbox } = trial;
  const printed: Pick<Output, 'stdout' | 'stderr'>[] = [];
  const transcript = await readTranscript(db, trial);
  try {
    if (task.kind === 'row') {
      const verdict = await gradeRow(task, { sandbox, transcript, graders }, signal);
      printed.push(verdict);
      return { rewards: verdict.rewards, reason: verdict.reason };
    }
    const onOutput = (output: Pick<Output, 'stdout' | 'stderr'>) => printed.push(output);
    return await judgeWork({ task, sandbox, isolation: await isolation(), signal, transcript, onOutput });
  } catch (error) {
    if (error instanceof GradeError) printed.push(error.printed);
    throw error;
  } finally {
    const last = printed.at(-1);
    if (last) await keepOutput(db, { trialId, attempt, program: 'verifier', stdout: last.stdout, stderr: last.stderr });
  }
}
