import { once } from 'node:events';
import { startStack, type Stack, type StackOptions } from './stack.ts';

/** Starts the stack, keeps it up until `signal` aborts, then stops it. @throws TrialgateError when it cannot start. */
export async function runSupervisorInForeground(
  options: StackOptions & { onReady?: (stack: Stack) => void },
  signal: AbortSignal,
): Promise<void> {
  const stack = await startStack(options, signal);
  options.onReady?.(stack);
  // Without this timer the process would end, because an idle supervisor has no socket or timer.
  const awake = setInterval(() => {}, 60_000);
  if (!signal.aborted) await once(signal, 'abort');
  clearInterval(awake);
  await stack.stop();
}
