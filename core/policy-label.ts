/** Returns the label under which an engine serves a version. */
export const versionLabel = (runId: string, version: number): string => `${runId}@${version}`;
