/** What an engine is told that it serves. */
export const versionLabel = (runId: string, version: number): string => `${runId}@${version}`;
