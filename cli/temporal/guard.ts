/**
 * Runs Temporal's development server, which has no authentication, in a separate network, and lets only processes of root and of this
 * deployment's user connect to it, on the ports where it would listen itself. A sandbox is refused, whatever network it has.
 */
import { spawn } from 'node:child_process';
import { rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import { LOOPBACK } from '../supervisor/gateways.ts';
import { guardOptions, forward, type ForwardedPort } from './guard-options.ts';
import { isOwnProcess } from './peer.ts';

const INSIDE = fileURLToPath(new URL('./inside.ts', import.meta.url));
/** Later refusals are not logged, so that repeated ones do not fill the log. */
const REFUSALS_LOGGED = 10;

const { bwrap, ...what } = guardOptions.parse(JSON.parse(process.argv[2] ?? ''));
let refusals = 0;

function open({ port, socket }: ForwardedPort): void {
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, async (client) => {
    client.on('error', () => {});
    if (await isOwnProcess(client)) return forward(client, { path: socket });
    client.destroy();
    refusals += 1;
    if (refusals <= REFUSALS_LOGGED)
      console.warn(
        `refused a connection to port ${port}: it is not from a process of root or of this deployment's user outside of sandboxes`,
      );
  });
  server.on('error', (error) => {
    console.error(error.message);
    process.exit(1);
  });
  server.listen(port, LOOPBACK);
}

for (const { socket } of what.ports) rmSync(socket, { force: true });
const namespaces = ['--unshare-net', '--unshare-pid', '--die-with-parent', '--dev-bind', '/', '/', '--proc', '/proc'];
// The child has its own process group, because a signal to our group must not end bubblewrap before Temporal has stopped.
const temporal = spawn(bwrap, [...namespaces, '--', process.execPath, INSIDE, JSON.stringify({ bwrap, ...what })], {
  stdio: ['pipe', 'inherit', 'inherit'],
  detached: true,
});
temporal.once('error', (error) => {
  console.error(error.message);
  process.exit(1);
});
temporal.once('exit', (code, signal) => {
  console.error(`Temporal ended: ${signal ?? `exit code ${code}`}`);
  process.exit(code ?? 1);
});
// The end of its input tells the other side to stop Temporal. This also works when this process is killed.
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => temporal.stdin.end());
what.ports.forEach(open);
