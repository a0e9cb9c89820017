import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { GatewayWatch } from './gateway-watch.ts';

async function listening() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const address = server.address();
  return { server, port: typeof address === 'object' ? (address?.port ?? 0) : 0 };
}

/** Stops this whole process, as a host without processor time or memory does. */
const stopFor = (ms: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

test('a worker’s probe of the gateway that is late because the worker itself was stopped counts as no gateway failure', async () => {
  const { port } = await listening();
  const watch = new GatewayWatch('127.0.0.1', port, 50);
  watch.ended();
  // The probe has begun to connect after this, and has not seen the connection.
  await new Promise<void>((resolve) => process.nextTick(resolve));
  stopFor(200);
  expect(await watch.failures()).toMatchObject({ gatewayFailures: 0 });
});

test('a gateway that has ended counts as a gateway failure', async () => {
  const { server, port } = await listening();
  server.close();
  await once(server, 'close');
  const watch = new GatewayWatch('127.0.0.1', port, 50);
  watch.ended();
  expect(await watch.failures()).toMatchObject({ gatewayFailures: 1 });
});

test('a gateway that leaves the worker’s connection unanswered counts as a gateway failure', async () => {
  // Its queue is full after two connections, and the kernel ignores further ones.
  const code =
    'import socket, time; s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(0); print(s.getsockname()[1], flush=True); time.sleep(600)';
  const child = spawn('python3', ['-c', code], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  const [printed]: Buffer[] = await once(child.stdout, 'data');
  const port = Number(printed);
  for (let index = 0; index < 3; index += 1) {
    const waiting = connect({ host: '127.0.0.1', port });
    waiting.on('error', () => {});
    onTestFinished(() => void waiting.destroy());
  }
  const watch = new GatewayWatch('127.0.0.1', port, 200);
  watch.ended();
  expect(await watch.failures()).toMatchObject({ gatewayFailures: 1 });
});
