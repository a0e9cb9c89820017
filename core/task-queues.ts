/** The task queue of workflows and general activities. */
export const TASK_QUEUE = 'trialgate';
/** The task queue where trials wait to be opened. Only hosts with a free slot poll it. */
export const SANDBOX_QUEUE = 'sandboxes';
