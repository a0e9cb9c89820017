/** Returns the first cause of a failure: Temporal wraps it once for each workflow and activity that it passed through. */
export function innermost(error: unknown): unknown {
  let at = error;
  while (at instanceof Error && at.cause instanceof Error) at = at.cause;
  return at;
}

/** Returns the message of a failure's first cause. */
export function describe(error: unknown): string {
  const cause = innermost(error);
  return cause instanceof Error ? cause.message : String(cause);
}
