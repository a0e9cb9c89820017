/** Where workflows and general activities are polled for. */
export const TASK_QUEUE = 'trialgate';
/** Where trials wait to be opened: polled only by hosts that have room. */
export const SANDBOX_QUEUE = 'sandboxes';
