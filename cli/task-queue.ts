/** Where workflows and general activities are polled for. */
export const TASK_QUEUE = 'trialgate';
