/** `sandboxes`: Trialgate runs the agents in its sandboxes. `external`: a program of the user runs them, wherever it lives. */
export const ROLLOUTS = ['sandboxes', 'external'] as const;

/** The agent of groups that an outside program runs. */
export const EXTERNAL_AGENT = 'external';

/** The task of a group that no program has claimed yet. The program that claims it names its task. */
export const UNCLAIMED_TASK = '';
