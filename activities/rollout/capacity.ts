/** How many more groups may start, counted in groups (rule 10 of the design). Never more than the run will train on. */
export function capacity(input: {
  running: number;
  /** Consumed by a step, or still eligible for one. */
  accepted: number;
  /** Steps that were made. */
  version: number;
  iterations: number;
  /** Groups of a batch. */
  batch: number;
  maxStaleness: number;
  maxConcurrent: number | null;
}): number {
  const { running, accepted, version, iterations, batch, maxStaleness, maxConcurrent } = input;
  const allowed = Math.min(maxStaleness + version + 1, iterations) * batch - (accepted + running);
  return Math.max(0, Math.min((maxConcurrent ?? Infinity) - running, allowed));
}
