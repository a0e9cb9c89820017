type AttributeValues = { runId: string; iteration?: number | null; version?: number; phase?: string };

/** Returns the search attributes by which a workflow of a run is found in Temporal's UI and lists (docs/operating.md). */
export function attributesOf({
  runId,
  iteration,
  version,
  phase,
}: AttributeValues): Record<string, [string] | [number]> {
  return {
    TrialgateRun: [runId],
    ...(iteration === undefined || iteration === null ? {} : { TrialgateIteration: [iteration] }),
    ...(version === undefined ? {} : { TrialgatePolicyVersion: [version] }),
    ...(phase === undefined ? {} : { TrialgatePhase: [phase] }),
  };
}
