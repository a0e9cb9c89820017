import type { Deps } from '../deps.ts';

/** Closes the sandbox of an attempt that nobody will verify, and frees its slot. */
export const closeSandbox =
  (deps: Deps) =>
  async (input: { trialId: string; attempt: number }): Promise<void> => {
    await deps.sandboxes.close(input);
  };
