/** The part of `guard.ts` that runs in Temporal's own network. It starts Temporal and connects the sockets to its ports. */
import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { LOOPBACK } from '../supervisor/gateways.ts';
import { guardOptions, forward } from './guard-options.ts';

const { ports, file, args } = guardOptions.parse(JSON.parse(process.argv[2] ?? ''));
const temporal = spawn(file, args, { stdio: ['ignore', 'inherit', 'inherit'] });
temporal.once('error', (error) => {
  console.error(error.message);
  process.exit(1);
});
temporal.once('exit', (code) => process.exit(code ?? 1));
process.stdin.once('end', () => temporal.kill('SIGTERM')).resume();

for (const { port, socket } of ports) {
  createServer({ allowHalfOpen: true }, (client) => forward(client, { host: LOOPBACK, port })).listen(socket);
}
