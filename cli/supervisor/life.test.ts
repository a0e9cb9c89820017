import { readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { resolveConfig } from '../config/resolve.ts';
import { environment } from './component.ts';
import { engineFault } from './components/engine-fault.ts';
import { startStack } from './stack.ts';

let folder = '';
beforeAll(async () => void (folder = await mkdtemp(join(tmpdir(), 'trialgate-life-'))));
afterAll(() => rm(folder, { recursive: true }));

/** Starts a program that prints `error` and ends, in place of vLLM. Returns why the stack cannot start, the number of the program's starts, and how often it was cleaned up after. */
async function startFailing(name: string, error: string): Promise<{ why: string; starts: number; cleanUps: number }> {
  const flags = { home: join(folder, name), gateway_port: '0', temporal_port: '0', postgres_port: '0' };
  const starts = join(folder, `${name}.starts`);
  writeFileSync(starts, '');
  let cleanUps = 0;
  const script = `require('fs').appendFileSync(${JSON.stringify(starts)}, '.'); console.error(${JSON.stringify(error)}); process.exit(2)`;
  const component = {
    name: 'vllm',
    address: 'an address',
    needs: [],
    launch: () => ({ file: process.execPath, args: ['-e', script], env: environment({}) }),
    isReady: async () => false,
    faultIn: engineFault,
    afterEnd: () => void (cleanUps += 1),
    readyWithinMs: 60_000,
    stopSignal: 'SIGTERM' as const,
    stopWithinMs: 5_000,
  };
  const { config } = resolveConfig({ cwd: folder, env: {}, flags });
  const why = await startStack(
    { config, components: () => ({ components: [component], notes: [] }) },
    new AbortController().signal,
  ).then(
    () => 'it started',
    (reason: unknown) => String(reason),
  );
  return { why, starts: readFileSync(starts, 'utf8').length, cleanUps };
}

test('an engine with a setting with which it can never start is given up at its first end, with its own sentence', async () => {
  const { why, starts } = await startFailing('fault', 'api_server.py: error: unrecognized arguments: --foo');
  expect(why).toMatch(/vllm cannot start: unrecognized arguments: --foo \(log: .*\)$/);
  expect(starts).toBe(1);
});

test('an engine that ends for another reason is started three times before it is given up, and cleaned up after each time', async () => {
  const { why, starts, cleanUps } = await startFailing('chance', 'RuntimeError: out of memory');
  expect(why).toContain('vllm cannot start: ended with exit code 2: RuntimeError: out of memory');
  expect([starts, cleanUps]).toEqual([3, 3]);
});
