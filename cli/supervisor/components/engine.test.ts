import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { resolveConfig } from '../../config/resolve.ts';
import { makePlan } from '../plan.ts';
import { engine } from './engine.ts';

test.each([
  ['model', []],
  ['float32', ['--hf-overrides', '{"head_dtype": "float32"}']],
])('a deployment with head_dtype %s starts vLLM with that head type', async (head_dtype, expected) => {
  const home = mkdtempSync(join(tmpdir(), 'trialgate-engine-'));
  try {
    const plan = await makePlan(resolveConfig({ cwd: home, env: {}, flags: { home, head_dtype } }).config);
    const args = engine(plan).launch().args ?? [];
    const at = args.indexOf('--hf-overrides');
    expect(at < 0 ? [] : args.slice(at, at + 2)).toEqual(expected);
  } finally {
    rmSync(home, { recursive: true });
  }
});

test.each(['short', 'l'.repeat(60)])(
  'vLLM has a folder of its own for its sockets and temporary files, which is emptied before each start and removed after each end (home %s)',
  async (name) => {
    const parent = mkdtempSync(join(tmpdir(), 'trialgate-engine-'));
    const home = join(parent, name);
    try {
      const component = engine(await makePlan(resolveConfig({ cwd: parent, env: {}, flags: { home } }).config));
      const folder = component.launch().env['TMPDIR'] ?? '';
      // The longest path of a socket has 107 bytes.
      expect(Buffer.byteLength(join(folder, crypto.randomUUID()))).toBeLessThanOrEqual(107);
      expect(dirname(folder).startsWith(name === 'short' ? home : tmpdir())).toBe(true);
      mkdirSync(folder, { recursive: true });
      writeFileSync(join(folder, 'left'), '');
      await component.prepare?.(new AbortController().signal);
      expect([existsSync(folder), existsSync(join(folder, 'left'))]).toEqual([true, false]);
      component.afterEnd?.();
      expect(existsSync(folder)).toBe(false);
      rmSync(dirname(folder), { recursive: true, force: true });
    } finally {
      rmSync(parent, { recursive: true });
    }
  },
);
