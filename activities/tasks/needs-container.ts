/** The end of a sentence about something in a task that only a container gives. */
export const NEEDS_CONTAINER = 'needs a container sandbox, which this version does not have';
