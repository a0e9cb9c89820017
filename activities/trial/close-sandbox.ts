import type { Deps } from '../deps.ts';

/** Releases the sandbox and the place of an attempt that nobody will verify. */
export const closeSandbox =
  (deps: Deps) =>
  async (input: { trialId: string; attempt: number }): Promise<void> => {
    await deps.sandboxes.close(input);
  };
