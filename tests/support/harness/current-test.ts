/**
 * The signal of the test that runs, which vitest aborts when the test reaches its limit. What waits for something asks it, because a
 * test that goes on after its end disturbs the next one. It is absent in hooks, and outside of vitest.
 */
export const currentTest: { signal: AbortSignal | undefined } = { signal: undefined };
