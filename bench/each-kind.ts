/**
 * Measures, or tries, one kind of sandbox after another. One that does not start here is left out, and one that fails on the way loses nothing of what
 * was measured. `incomplete` has a line about each of these, which `report` is told at once; `hasFailed` is true when one started and was not
 * measured whole.
 */
export async function eachKind<Kind extends string>(
  kinds: readonly Kind[],
  steps: { start: (kind: Kind) => Promise<void>; measure: (kind: Kind) => Promise<void> },
  { signal, report }: { signal: AbortSignal; report: (line: string) => void },
): Promise<{ incomplete: string[]; hasFailed: boolean }> {
  const incomplete: string[] = [];
  let hasFailed = false;
  const note = (line: string, error: unknown): void => {
    incomplete.push(`${line}: ${error instanceof Error ? error.message : String(error)}`);
    report(incomplete.at(-1) ?? '');
  };
  for (const kind of kinds) {
    if (signal.aborted) {
      note(`${kind} is not begun`, signal.reason);
      continue;
    }
    try {
      await steps.start(kind);
    } catch (error) {
      note(`${kind} is left out`, error);
      continue;
    }
    try {
      await steps.measure(kind);
    } catch (error) {
      hasFailed = true;
      note(`${kind} ended early`, error);
    }
  }
  return { incomplete, hasFailed };
}
