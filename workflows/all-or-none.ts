import { CancellationScope } from '@temporalio/workflow';

/** Runs all works side by side. When one fails or the caller is cancelled, the others are cancelled and waited for. */
export async function allOrNone(works: readonly (() => Promise<unknown>)[]): Promise<void> {
  const scope = new CancellationScope();
  const running = works.map((work) => scope.run(work));
  try {
    await Promise.all(running);
  } catch (error) {
    scope.cancel();
    await CancellationScope.nonCancellable(() => Promise.allSettled(running));
    throw error;
  }
}
