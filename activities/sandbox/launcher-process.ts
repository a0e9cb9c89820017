import type { OnOutput, OutputStream } from './bounded-output.ts';
import { removeTree } from './remove-tree.ts';
import { runProcess, type ProcessResult, type ProcessSpec } from './run-process.ts';
import type { ForkServerSpec } from './warm/fork-server.ts';
import { ForkServers } from './warm/fork-servers.ts';

/** A process, and the server of which it is a fork where that is possible. */
export type LaunchSpec = ProcessSpec & { forkServer?: ForkServerSpec };

export type ToLauncher =
  | { id: number; spec: Omit<LaunchSpec, 'signal' | 'onOutput'>; isStreamed: boolean }
  | { id: number; abort: true }
  | { id: number; remove: string };
export type FromLauncher =
  | { id: number; result: ProcessResult }
  | { id: number; stream: OutputStream; text: string }
  | { id: number; removed: string | null }
  | { id: number; error: string };

const running = new Map<number, AbortController>();
const forkServers = new ForkServers();
const reply = (message: FromLauncher): void => void (process.connected && process.send?.(message));

async function run(
  id: number,
  { forkServer, ...rest }: Omit<LaunchSpec, 'signal' | 'onOutput'>,
  isStreamed: boolean,
): Promise<void> {
  const controller = new AbortController();
  running.set(id, controller);
  try {
    const onOutput: OnOutput = (stream, text) => reply({ id, stream, text });
    const spec = { ...rest, ...(isStreamed ? { onOutput } : {}), signal: controller.signal };
    const warm = forkServer ? await forkServers.run({ ...spec, forkServer }) : null;
    reply({ id, result: warm ?? (await runProcess(spec)) });
  } catch (error) {
    reply({ id, error: error instanceof Error ? error.message : String(error) });
  } finally {
    running.delete(id);
    if (!process.connected) await endWhenIdle();
  }
}

async function endWhenIdle(): Promise<void> {
  if (running.size > 0) return;
  await forkServers.close();
  process.exit();
}

process.on('message', (message: ToLauncher) => {
  if ('remove' in message) void removeTree(message.remove).then((removed) => reply({ id: message.id, removed }));
  else if ('abort' in message) running.get(message.id)?.abort();
  else void run(message.id, message.spec, message.isStreamed);
});
// The worker may have ended before it read a reply.
process.on('error', () => {});
// The worker decides how to handle a signal that both get.
for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => {});
// The worker has ended: nothing that it started may outlive it.
process.once('disconnect', () => {
  void endWhenIdle();
  for (const controller of running.values()) controller.abort();
});
