import { TrialgateError } from '../core/errors.ts';

/**
 * Measures, or tries, one kind of sandbox after another. One for which this machine lacks something (`missing_prerequisite`) is left out, and one that
 * fails, at its start or on the way, loses nothing of what was measured. `incomplete` has a line about each of these, which `report` is told at
 * once; `hasFailed` is true when one failed, or when something that was tried on it failed.
 */
export async function eachKind<Kind extends string>(
  kinds: readonly Kind[],
  steps: { start: (kind: Kind) => Promise<void>; measure: (kind: Kind) => Promise<{ failed: number } | void> },
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
      const isMissing = error instanceof TrialgateError && error.code === 'missing_prerequisite';
      hasFailed ||= !isMissing;
      note(`${kind} ${isMissing ? 'is left out' : 'did not start'}`, error);
      continue;
    }
    try {
      const measured = await steps.measure(kind);
      hasFailed ||= measured !== undefined && measured.failed > 0;
    } catch (error) {
      hasFailed = true;
      note(`${kind} ended early`, error);
    }
  }
  return { incomplete, hasFailed };
}
