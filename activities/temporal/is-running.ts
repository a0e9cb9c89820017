import type { Deps } from '../deps.ts';

/** Returns true when a workflow with this id is under way. */
export async function isRunning(deps: Pick<Deps, 'temporal'>, workflowId: string): Promise<boolean> {
  try {
    return (await deps.temporal.workflow.getHandle(workflowId).describe()).status.name === 'RUNNING';
  } catch (error) {
    if (error instanceof Error && error.name === 'WorkflowNotFoundError') return false;
    throw error;
  }
}
