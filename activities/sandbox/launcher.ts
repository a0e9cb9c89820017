import { spawn, type ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import type { OnOutput } from './bounded-output.ts';
import { SandboxError } from './errors.ts';
import { killMarked, MARKER, noteRunning } from './kill-tree.ts';
import type { FromLauncher, LaunchSpec, ToLauncher } from './launcher-process.ts';
import { removeTree } from './remove-tree.ts';
import { notStarted, type ProcessResult } from './run-process.ts';

const FILE = fileURLToPath(new URL('./launcher-process.ts', import.meta.url));

/** Closes the descriptors that this worker inherited, because sandboxes would inherit them too. Node's own are close-on-exec. */
const CLOSE_DESCRIPTORS = `
  for path in /proc/self/fd/*; do
    number=\${path##*/}
    if [ "$number" -gt 3 ]; then eval "exec $number>&-"; fi
  done
  exec "$0" "$@"`;

type PendingReply = {
  resolve: (reply: FromLauncher) => void;
  reject: (error: Error) => void;
  onOutput?: OnOutput | undefined;
};
type Launcher = { child: ChildProcess; marker: string; pending: Map<number, PendingReply> };

let current: Launcher | null = null;
let lastId = 0;

/**
 * Runs `runProcess` in a small process of this worker. To start a process Linux copies the starter's page tables, which stops the event
 * loop of a worker of 300 MB for 20 ms, and this small process for 1 ms.
 */
export async function launch({ signal, onOutput, ...spec }: LaunchSpec): Promise<ProcessResult> {
  if (signal.aborted) return notStarted();
  const { send, id, reply, launcherMarker } = request(
    (newId) => ({ id: newId, spec, isStreamed: onOutput !== undefined }),
    onOutput,
  );
  const abort = (): void => send({ id, abort: true });
  const forget = noteRunning(spec.marker, async () => {
    abort();
    await reply.catch(() => {});
  });
  signal.addEventListener('abort', abort, { once: true });
  try {
    const answer = await reply.catch(async (error: unknown) => {
      // The launcher is dead. That also ends bubblewrap, unless bubblewrap was just starting: between fork and exec, a process has the
      // launcher's environment, and so its marker.
      await killMarked(null, launcherMarker);
      await killMarked(null, spec.marker);
      throw error;
    });
    if (!('result' in answer))
      throw new SandboxError(
        'error' in answer ? answer.error : 'the process that starts the sandboxes sent an invalid reply',
      );
    return answer.result;
  } finally {
    signal.removeEventListener('abort', abort);
    forget();
  }
}

/** Runs `removeTree` in the launcher's process, which may be this one. */
export async function remove(path: string): Promise<string | null> {
  if (process.argv[1] === FILE) return removeTree(path);
  const answer = await request((id) => ({ id, remove: path })).reply;
  if ('removed' in answer) return answer.removed;
  throw new SandboxError(
    'error' in answer ? answer.error : 'the process that starts the sandboxes sent an invalid reply',
  );
}

function request(message: (id: number) => ToLauncher, onOutput?: OnOutput) {
  const launcher = (current ??= start());
  const id = ++lastId;
  const send = (toLauncher: ToLauncher): void => void (launcher.child.connected && launcher.child.send(toLauncher));
  const reply = new Promise<FromLauncher>((resolve, reject) =>
    launcher.pending.set(id, { resolve, reject, onOutput }),
  ).finally(() => {
    launcher.pending.delete(id);
    if (launcher.pending.size === 0) release(launcher);
  });
  launcher.child.ref();
  launcher.child.channel?.ref();
  send(message(id));
  return { id, send, reply, launcherMarker: launcher.marker };
}

function start(): Launcher {
  const marker = `launcher-${randomUUID()}`;
  const child = spawn('bash', ['-c', CLOSE_DESCRIPTORS, process.execPath, FILE], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    env: { PATH: process.env.PATH, [MARKER]: marker },
  });
  const launcher: Launcher = { child, marker, pending: new Map() };
  const end = (why: string): void => {
    if (current === launcher) current = null;
    for (const { reject } of launcher.pending.values())
      reject(new SandboxError(`the process that starts the sandboxes ended: ${why}`));
  };
  child.on('message', (message: FromLauncher) => {
    const pending = launcher.pending.get(message.id);
    if ('stream' in message) pending?.onOutput?.(message.stream, message.text);
    else pending?.resolve(message);
  });
  child.on('error', (error) => end(error.message));
  child.once('exit', (code, killed) => end(killed ?? `exit code ${code}`));
  return launcher;
}

/** Lets the process end while the launcher is idle. The launcher ends with its worker. */
function release({ child }: Launcher): void {
  child.unref();
  child.channel?.unref();
}
