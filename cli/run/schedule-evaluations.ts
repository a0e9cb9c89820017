import { ScheduleAlreadyRunning, ScheduleNotFoundError, ScheduleOverlapPolicy, type Client } from '@temporalio/client';
import type { EvaluationRequest } from '../../activities/evaluation/plan-evaluation-on-demand.ts';
import { readRun } from '../../activities/run/read-run.ts';
import { TrialgateError } from '../../core/errors.ts';
import type { evaluateRun } from '../../workflows/evaluate-run.ts';
import { TASK_QUEUE } from '../../core/task-queues.ts';
import type { DeploymentClients } from './connect.ts';

const scheduleOf = (runId: string): string => `${runId}/evaluate`;

/** Evaluates a run at these times, in UTC unless a time zone is given. A time is skipped while an evaluation is under way. */
export async function scheduleEvaluations(
  { client, db }: DeploymentClients,
  request: EvaluationRequest,
  { cron, timezone }: { cron: string; timezone?: string },
): Promise<void> {
  await readRun(db, request.runId);
  const scheduleId = scheduleOf(request.runId);
  try {
    await client.schedule.create<typeof evaluateRun>({
      scheduleId,
      spec: { cronExpressions: [cron], timezone },
      action: {
        type: 'startWorkflow',
        workflowType: 'evaluateRun',
        workflowId: scheduleId,
        taskQueue: TASK_QUEUE,
        args: [request],
      },
      policies: { overlap: ScheduleOverlapPolicy.SKIP, catchupWindow: '1h' },
      memo: { cron },
    });
  } catch (error) {
    if (error instanceof ScheduleAlreadyRunning) {
      throw new TrialgateError(
        'bad_input',
        `run ${request.runId} has a schedule: "npx trialgate schedule ${request.runId} --remove" first`,
        { cause: error },
      );
    }
    if (error instanceof Error && /invalid|cron|timezone|time zone/i.test(error.message)) {
      throw new TrialgateError(
        'bad_input',
        `Temporal refuses ${JSON.stringify(cron)}${timezone ? ` in ${timezone}` : ''}: ${reasonOf(error)}`,
        { cause: error },
      );
    }
    throw error;
  }
}

export async function removeSchedule(client: Client, runId: string): Promise<void> {
  try {
    await client.schedule.getHandle(scheduleOf(runId)).delete();
  } catch (error) {
    if (!(error instanceof ScheduleNotFoundError)) throw error;
    throw new TrialgateError('not_found', `run ${runId} has no schedule`, { cause: error });
  }
}

export type EvaluationSchedule = { run: string; cron: string; paused: boolean; next: string | null };

export async function listSchedules(client: Client): Promise<EvaluationSchedule[]> {
  const found: EvaluationSchedule[] = [];
  for await (const { scheduleId, memo, state, action, info } of client.schedule.list()) {
    if (action?.workflowType !== 'evaluateRun') continue;
    const next = info.nextActionTimes[0]?.toISOString() ?? null;
    found.push({
      run: scheduleId.replace(/\/evaluate$/, ''),
      cron: String(memo?.['cron'] ?? ''),
      paused: state.paused,
      next,
    });
  }
  return found.toSorted((a, b) => a.run.localeCompare(b.run));
}

function reasonOf(error: Error): string {
  const details = error.cause instanceof Error && 'details' in error.cause ? error.cause.details : undefined;
  return typeof details === 'string' && details !== '' ? details : error.message;
}
