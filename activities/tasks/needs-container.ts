/** The end of a sentence about something in a task that only a container gives. */
export const NEEDS_CONTAINER = 'needs a container sandbox: set `sandbox: container` in the run file';

/** The end of a sentence about something in a task that no sandbox of this version gives. */
export const NOT_POSSIBLE = 'is not possible in this version, whatever the sandbox';
