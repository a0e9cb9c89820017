import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { resolveConfig } from '../../config/resolve.ts';
import { makePlan } from '../plan.ts';
import { engine } from './engine.ts';
import { gpuWorker } from './workers.ts';

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

test.each(['float32', 'bfloat16'])(
  'a deployment with dtype %s computes in it in its engine and in its trainer, and says so',
  async (dtype) => {
    const home = mkdtempSync(join(tmpdir(), 'trialgate-engine-'));
    try {
      const planWith = (flags: Record<string, string>) =>
        makePlan(resolveConfig({ cwd: home, env: {}, flags: { home, ...flags } }).config);
      const plan = await planWith({ dtype });
      const [vllm, trainer] = [engine(plan), gpuWorker(plan)];
      const { args } = vllm.launch();
      expect(args.slice(args.indexOf('--dtype')).slice(0, 2)).toEqual(['--dtype', dtype]);
      expect(trainer.launch().env['TRIALGATE_DTYPE']).toBe(dtype);
      for (const { address } of [vllm, trainer]) expect(address).toContain(`, ${dtype} (as the setting dtype says)`);
      const other = engine(await planWith({ dtype, engine_args: '--dtype=float16' }));
      expect(other.address).toContain(', float16 (as engine_args say)');
      expect(other.launch().args.at(-1)).toBe('--dtype=float16');
    } finally {
      rmSync(home, { recursive: true });
    }
  },
);

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
