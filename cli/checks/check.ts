/** `not checked` means that a prerequisite is missing, which `summary` names. It does not fail the run. */
export type Verdict = { result: 'passed' | 'failed' | 'not checked'; summary: string; details?: readonly string[] };

export type Check = { name: string; run(signal: AbortSignal): Promise<Verdict> };

export const passed = (summary: string): Verdict => ({ result: 'passed', summary });
export const failed = (summary: string, details: readonly string[]): Verdict => ({
  result: 'failed',
  summary,
  details,
});
export const notChecked = (summary: string): Verdict => ({ result: 'not checked', summary });
