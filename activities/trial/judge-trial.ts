import type { Task } from '../../core/task.ts';
import type { Database } from '../../store/database.ts';
import { readCompletionIds } from '../../store/queries/read-completion-ids.ts';
import { readTranscript } from '../../store/queries/read-transcript.ts';
import type { Output } from '../../store/queries/outputs.ts';
import { gradeRow } from '../reward/grade-row.ts';
import { GradeError } from '../reward/grader.ts';
import type { Graders } from '../reward/graders.ts';
import type { SandboxBackend } from '../sandbox/backend.ts';
import type { EgressRow } from '../sandbox/egress/egress-log.ts';
import type { Sandbox } from '../sandbox/empty-sandbox.ts';
import type { VerifierPlace } from '../sandbox/host-sandboxes.ts';
import { judgeWork } from '../sandbox/judge-work.ts';
import type { VerifierRewards } from '../sandbox/read-rewards.ts';
import { keepOutput } from './keep-output.ts';
import { readTraining } from './read-training.ts';

export type Judged = VerifierRewards & { reason?: string };

type VerifierOutput = Pick<Output, 'stdout' | 'stderr'> & { egress?: EgressRow[] };
type Place = { db: Database; graders: Graders };
type Trial = {
  trialId: string;
  attempt: number;
  task: Task;
  sandbox: Sandbox;
  backend: SandboxBackend;
  /** The kind and the image of the sandbox of the tests; null: those of the agent's. */
  verifier: VerifierPlace | null;
};

/**
 * Judges the agent's work, by the task's tests or by the row's reward functions, and keeps what they printed.
 * @throws VerifierError and SandboxError as `judgeWork` and `gradeRow` do
 */
export async function judgeTrial({ db, graders }: Place, trial: Trial, signal: AbortSignal): Promise<Judged> {
  const { trialId, attempt, task, sandbox } = trial;
  const place = trial.verifier ?? { backend: trial.backend, image: sandbox.image };
  const printed: VerifierOutput[] = [];
  const transcript = await readTranscript(db, trial);
  try {
    if (task.kind === 'row') {
      const training = await readTraining(db, trialId);
      const work = { transcript, completion_ids: await readCompletionIds(db, trial), training };
      const verdict = await gradeRow(task, { sandbox, graders, ...work }, signal);
      printed.push(verdict);
      return { rewards: verdict.rewards, reason: verdict.reason };
    }
    const onOutput = (output: VerifierOutput) => printed.push(output);
    return await judgeWork({ task, sandbox, ...place, signal, transcript, onOutput });
  } catch (error) {
    if (error instanceof GradeError) printed.push(error.printed);
    throw error;
  } finally {
    const last = printed.at(-1);
    if (last) await keepOutput(db, { trialId, attempt, program: 'verifier', ...last });
  }
}
