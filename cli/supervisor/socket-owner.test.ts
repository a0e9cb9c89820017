import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { expect, test } from 'vitest';
import { freePort } from '../../core/free-port.ts';
import { takeLock } from '../../core/lock.ts';
import { lockOwner, portOwner } from './socket-owner.ts';

test.each(['127.0.0.1', '0.0.0.0', ...(existsSync('/proc/net/if_inet6') ? ['::'] : [])])(
  'a port that another process listens on at %s has that process as its owner, with its id and program',
  async (host) => {
    const port = await freePort('127.0.0.1');
    const script = `require('net').createServer().listen(${port}, '${host}', () => console.log('listens'))`;
    const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
    const ended = once(child, 'exit');
    try {
      await Promise.race([once(child.stdout, 'data'), ended]);
      expect(portOwner(port, '127.0.0.1')).toBe(`node (process ${child.pid})`);
      if (host === '127.0.0.1') expect(portOwner(port, '127.0.0.2')).toBeNull();
    } finally {
      child.kill();
      await ended;
    }
    expect(portOwner(port, '127.0.0.1')).not.toBe(`node (process ${child.pid})`);
  },
);

test('a lock has the process that took it as its owner, until it is released', async () => {
  expect(lockOwner('/a/folder', 'owner-test')).toBeNull();
  const lock = await takeLock('/a/folder', 'owner-test');
  expect(lockOwner('/a/folder', 'owner-test')).toBe(`node (process ${process.pid})`);
  await lock?.release();
  expect(lockOwner('/a/folder', 'owner-test')).toBeNull();
});
