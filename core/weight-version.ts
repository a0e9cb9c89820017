/** Returns the weight version under which an engine serves a version. */
export const weightVersionOf = (runId: string, version: number): string => `${runId}@${version}`;
