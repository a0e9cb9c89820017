import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { spawn } from 'node:child_process';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { freePort } from '../../core/free-port.ts';
import { until } from '../../tests/support/harness/until.ts';
import { openForwarder } from './forwarder.ts';
import { isolation } from './isolation.ts';

const NAMED = {
  host: 'gateway.example',
  port: 9,
  insidePort: 8700,
  insideUrl: 'http://gateway.example:8700',
  name: 'gateway.example',
};

function freshFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'trialgate-forwarder-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

/** Returns where a link leads. A descriptor may be closed since it was listed. */
function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}

test('a forwarder that cannot be opened leaves no socket and no open descriptor', async () => {
  const folder = freshFolder();
  mkdirSync(join(folder, 'hosts'));
  await expect(openForwarder(NAMED, folder)).rejects.toMatchObject({ code: 'EISDIR' });
  expect(existsSync(join(folder, 'gateway.sock'))).toBe(false);
  expect(readdirSync('/proc/self/fd').map((number) => linkOf(`/proc/self/fd/${number}`))).not.toContain(folder);
});

test('a sandbox’s own user can read the sandbox’s `/etc/hosts`, whatever the worker’s umask is', async () => {
  const umask = process.umask(0o077);
  try {
    const forwarder = await openForwarder(NAMED, freshFolder());
    expect(statSync(forwarder.hosts ?? '').mode & 0o777).toBe(0o644);
    await forwarder.close();
  } finally {
    process.umask(umask);
  }
});

/** Returns the processes whose command line has this word. */
function pidsOf(word: string): number[] {
  const pids = readdirSync('/proc').map(Number).filter(Number.isInteger);
  return pids.filter((pid) => readIfThere(`/proc/${pid}/cmdline`).split('\0').includes(word));
}

function readIfThere(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/** A relay accepts a connection, opens another, and may run out of descriptors before either. */
test.each([64, 65])(
  'a relay that may have %i descriptors serves 100 connections of an agent, as many at once as it can',
  async (descriptors) => {
    const folder = freshFolder();
    const socket = join(folder, 'gateway.sock');
    const waiting: Socket[] = [];
    let isOpen = false;
    const gateway = createServer(
      (inside) => void inside.once('data', () => (isOpen ? inside.end('answer') : waiting.push(inside))),
    ).listen(socket);
    await once(gateway, 'listening');
    const port = await freePort('127.0.0.1');
    const relay = join(dirname(import.meta.filename), 'relay.py');
    const script = `ulimit -n ${descriptors}; exec "$0" "$@"`;
    const { python } = await isolation();
    const command = spawn(
      'sh',
      ['-c', script, python.executable, relay, socket, String(port), '--', '/bin/sh', '-c', 'echo ready; exec cat'],
      { stdio: ['pipe', 'pipe', 'inherit'] },
    );
    onTestFinished(() => {
      gateway.close();
      command.kill();
      // The relay is not the command's child.
      for (const pid of pidsOf(socket)) process.kill(pid, 'SIGKILL');
    });
    await once(command.stdout, 'data');
    const answers = Array.from({ length: 100 }, () => {
      const agent = connect(port, '127.0.0.1');
      agent.write('question');
      return text(agent);
    });
    await until(() => waiting.length >= 16);
    isOpen = true;
    for (const inside of waiting) inside.end('answer');
    expect(new Set(await Promise.all(answers))).toEqual(new Set(['answer']));
  },
);
