import { once } from 'node:events';
import { startStack, type Stack, type StackOptions } from './stack.ts';
import type { Log } from '../../core/log.ts';
import type { StackState } from './state.ts';

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

/** Writes the notes, and a line whenever a component's status changes. */
export function stackLog(log: Log): (state: StackState) => void {
  const known = new Map<string, string>();
  let isNew = true;
  return ({ components, notes }) => {
    if (isNew) for (const note of notes) log(`note: ${note}`);
    isNew = false;
    for (const { name, status, process, detail } of components) {
      const text = `${name} ${status}${process ? ` (pid ${process.pid})` : ''}${detail ? `: ${detail}` : ''}`;
      if (known.get(name) === text) continue;
      known.set(name, text);
      log(text, status === 'failing' ? { level: 'warning' } : {});
    }
  };
}
