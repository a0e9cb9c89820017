/** What is at the bottom of a failure: Temporal wraps it once for each workflow and activity that it came through. */
export function innermost(error: unknown): unknown {
  let at = error;
  while (at instanceof Error && at.cause instanceof Error) at = at.cause;
  return at;
}

/** What a failure's innermost cause says. */
export function describe(error: unknown): string {
  const cause = innermost(error);
  return cause instanceof Error ? cause.message : String(cause);
}
