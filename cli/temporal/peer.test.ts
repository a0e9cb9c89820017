import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer, Socket } from 'node:net';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { isolation } from '../../activities/sandbox/isolation.ts';
import { sandboxWith, shell, temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { isOwnProcess } from './peer.ts';

const server = createServer({ pauseOnConnect: true });
let port = 0;

beforeAll(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  port = typeof address === 'object' ? (address?.port ?? 0) : 0;
});
afterAll(() => void server.close());

/** Returns the guard's answer to the next connection. */
async function nextIsOwn(): Promise<boolean> {
  const [socket]: Socket[] = await once(server, 'connection');
  return isOwnProcess(socket ?? new Socket()).finally(() => socket?.destroy());
}

test('the guard of Temporal lets a process of the deployment’s user through', async () => {
  const asked = nextIsOwn();
  const client = connect({ port, host: '127.0.0.1' });
  client.on('error', () => {});
  onTestFinished(() => void client.destroy());
  expect(await asked).toBe(true);
});

const found = await isolation();

test.skipIf(found.kind !== 'bubblewrap')(
  'the guard of Temporal refuses a process in a sandbox with the host’s network',
  async () => {
    await using folder = await temporaryHome();
    const sandbox = await sandboxWith(folder.home, {});
    const asked = nextIsOwn();
    await shell(found, sandbox, `exec 3<>/dev/tcp/127.0.0.1/${port}; read -t 5 <&3`, { network: { kind: 'host' } });
    expect(await asked).toBe(false);
  },
);

/** Connects from the port of another connection, but from another address. The kernel's table then has two rows with these two ports, in any order. */
const fromPort = (serverPort: number, clientPort: number): string => `python3 -c '
import socket
for last in range(2, 18):
    with socket.socket() as connection:
        connection.settimeout(20)
        connection.bind((f"127.0.0.{last}", ${clientPort}))
        connection.connect(("127.0.0.1", ${serverPort}))
        try: connection.recv(1)
        except OSError: pass
'`;

test.skipIf(found.kind !== 'bubblewrap')(
  'the guard of Temporal refuses a sandbox that connects from the port number of a process of the deployment’s user',
  async () => {
    await using folder = await temporaryHome();
    const sandbox = await sandboxWith(folder.home, {});
    const verdicts: Promise<boolean>[] = [];
    const judge = (socket: Socket): void => void verdicts.push(isOwnProcess(socket).finally(() => socket.destroy()));
    const client = connect({ port, host: '127.0.0.1' });
    const [own]: Socket[] = await once(server, 'connection');
    onTestFinished(() => void (client.destroy(), own?.destroy()));
    server.on('connection', judge);
    onTestFinished(() => void server.off('connection', judge));
    const { stderr } = await shell(found, sandbox, fromPort(port, own?.remotePort ?? 0), {
      network: { kind: 'host' },
      seconds: 60,
    });
    expect(stderr).toBe('');
    expect(await Promise.all(verdicts)).toEqual(Array.from({ length: 16 }, () => false));
    // The process itself is still let through.
    expect(await isOwnProcess(own ?? new Socket())).toBe(true);
  },
);

test.skipIf(process.getuid?.() !== 0)(
  'the guard of Temporal refuses a process of another user (skipped unless root)',
  async () => {
    const asked = nextIsOwn();
    const child = spawn('bash', ['-c', `exec 3<>/dev/tcp/127.0.0.1/${port}; read -t 5 <&3`], {
      uid: 65534,
      gid: 65534,
      cwd: '/',
      stdio: 'ignore',
    });
    onTestFinished(() => void child.kill('SIGKILL'));
    expect(await asked).toBe(false);
  },
);

test('the guard of Temporal refuses a connection that has ended, because its process cannot be determined', async () => {
  const asked = once(server, 'connection');
  const client = connect({ port, host: '127.0.0.1' });
  const [socket]: Socket[] = await asked;
  client.resetAndDestroy();
  await once(client, 'close');
  expect(await isOwnProcess(socket ?? new Socket())).toBe(false);
  socket?.destroy();
});

test('the guard of Temporal refuses a connection whose client is gone, even if a process of the deployment’s user now uses that client’s port', async () => {
  const verdicts: Promise<boolean>[] = [];
  const judge = (socket: Socket): void => {
    onTestFinished(() => void socket.destroy());
    verdicts.push(isOwnProcess(socket));
  };
  // The system gives no other connection a port from below its own range (32768 and up).
  const localPort = 20_000 + Math.floor(Math.random() * 10_000);
  const first = connect({ port, host: '127.0.0.1', localPort });
  const [ended]: Socket[] = await once(server, 'connection');
  first.resetAndDestroy();
  await once(first, 'close');
  server.on('connection', judge);
  onTestFinished(() => void server.off('connection', judge));
  judge(ended ?? new Socket());
  const second = connect({ port, host: '127.0.0.1', localPort });
  onTestFinished(() => void second.destroy());
  await once(server, 'connection');
  expect(await Promise.all(verdicts)).toEqual([false, true]);
});
