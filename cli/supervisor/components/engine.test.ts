import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
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
