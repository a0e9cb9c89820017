import { removeTree } from './remove-tree.ts';
import { runProcess, type ProcessResult, type ProcessSpec } from './run-process.ts';

export type ToLauncher =
  { id: number; spec: Omit<ProcessSpec, 'signal'> } | { id: number; abort: true } | { id: number; remove: string };
export type FromLauncher =
  { id: number; result: ProcessResult } | { id: number; removed: string | null } | { id: number; error: string };

const running = new Map<number, AbortController>();
const reply = (message: FromLauncher): void => void (process.connected && process.send?.(message));

async function run(id: number, spec: Omit<ProcessSpec, 'signal'>): Promise<void> {
  const controller = new AbortController();
  running.set(id, controller);
  try {
    reply({ id, result: await runProcess({ ...spec, signal: controller.signal }) });
  } catch (error) {
    reply({ id, error: error instanceof Error ? error.message : String(error) });
  } finally {
    running.delete(id);
    if (!process.connected && running.size === 0) process.exit();
  }
}

process.on('message', (message: ToLauncher) => {
  if ('remove' in message) void removeTree(message.remove).then((removed) => reply({ id: message.id, removed }));
  else if ('abort' in message) running.get(message.id)?.abort();
  else void run(message.id, message.spec);
});
// The worker may have ended before it read a reply.
process.on('error', () => {});
// The worker decides how to handle a signal that both get.
for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => {});
// The worker has ended: nothing that it started may outlive it.
process.once('disconnect', () => {
  if (running.size === 0) process.exit();
  for (const controller of running.values()) controller.abort();
});
