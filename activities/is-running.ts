import type { Deps } from './deps.ts';

/** Whether Temporal has a workflow under way that has this id. */
export async function isRunning(deps: Pick<Deps, 'temporal'>, workflowId: string): Promise<boolean> {
  try {
    return (await deps.temporal.workflow.getHandle(workflowId).describe()).status.name === 'RUNNING';
  } catch (error) {
    if (error instanceof Error && error.name === 'WorkflowNotFoundError') return false;
    throw error;
  }
}
