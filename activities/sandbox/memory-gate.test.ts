import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { writeFiles } from '../../tests/support/harness/sandbox-fixtures.ts';
import { MemoryGate, memoryShortage } from './memory-gate.ts';

const never = new AbortController().signal;

/** Returns the shortage that these files of the kernel mean. */
async function shortageOf(files: Record<string, string>, wasShort = false): Promise<string | null> {
  const proc = mkdtempSync(join(tmpdir(), 'trialgate-proc-'));
  await writeFiles(proc, files);
  const shortage = memoryShortage(wasShort, proc);
  rmSync(proc, { recursive: true });
  return shortage;
}

const pressure = (full: string) => ({
  'pressure/memory': `some avg10=90.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=${full} avg60=0.00 avg300=0.00 total=1\n`,
});
const meminfo = (available: number) => ({ meminfo: `MemTotal:       1000 kB\nMemAvailable:   ${available} kB\n` });

test('a host is short of memory when its work waits for memory or hardly any is left, and not where the kernel does not tell', async () => {
  expect(await shortageOf({ ...pressure('0.00'), ...meminfo(500) })).toBeNull();
  expect(await shortageOf({ ...pressure('12.50'), ...meminfo(500) })).toContain('12.5% of the last 10 s');
  expect(await shortageOf({ ...pressure('0.00'), ...meminfo(30) })).toBe('3.0% of its memory is available');
  expect(await shortageOf(meminfo(30))).not.toBeNull();
  expect(await shortageOf({})).toBeNull();
});

test('a shortage ends only when the host is well above where it began', async () => {
  expect(await shortageOf({ ...pressure('8.00'), ...meminfo(500) })).toBeNull();
  expect(await shortageOf({ ...pressure('8.00'), ...meminfo(500) }, true)).not.toBeNull();
  expect(await shortageOf(meminfo(80), true)).not.toBeNull();
  expect(await shortageOf({ ...pressure('4.00'), ...meminfo(120) }, true)).toBeNull();
});

/** A gate whose host is short of memory until the test says otherwise. */
function shortHost() {
  const host: { why: string | null } = { why: 'no memory' };
  const lines: string[] = [];
  const gate = new MemoryGate({ shortage: () => host.why, log: (line) => lines.push(line), pollMs: 1 });
  return { host, lines, gate };
}

test('sandboxes wait while the host is short of memory, and its beginning and end are said once', async () => {
  const { host, lines, gate } = shortHost();
  const passed: number[] = [];
  const waiting = [1, 2].map((number) => gate.pass(() => false, never).then(() => passed.push(number)));
  for (let i = 0; i < 20; i++) await turn();
  expect(passed).toEqual([]);
  host.why = null;
  await Promise.all(waiting);
  expect(lines).toEqual([
    'this host is short of memory (no memory): new trials wait until it has more, or until no other runs here',
    'this host has memory again: new trials start',
  ]);
});

test('a sandbox that is alone on its host starts, however short of memory the host is', async () => {
  const { gate } = shortHost();
  let others = 1;
  const passing = gate.pass(() => others === 0, never);
  others = 0;
  await passing;
});

test('a sandbox that waits for memory can be cancelled', async () => {
  const { gate } = shortHost();
  const stop = new AbortController();
  const passing = gate.pass(() => false, stop.signal);
  stop.abort(new Error('cancelled'));
  await expect(passing).rejects.toThrow('cancelled');
});
