import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { resolveConfig } from '../config/resolve.ts';
import { gpuSharesOf, memoryArguments, shareGpus, shareNote } from './gpus.ts';

const configured = (flags: Record<string, string> = {}) =>
  resolveConfig({ cwd: '/', env: {}, flags: { home: '/nowhere', device: 'cuda', ...flags } }).config;
const shares = (visible: string[], flags: Record<string, string> = {}) => shareGpus(configured(flags), visible);
const asEachSees = { engine: null, trainer: null, isShared: false, isKnown: true };
const unknown = { ...asEachSees, isKnown: false };

describe('the GPUs of a machine', () => {
  const eight = Array.from({ length: 8 }, (_, index) => String(index));

  test.each([
    ['one each', ['0', '1'], {}, { engine: ['0'], trainer: ['1'], isShared: false, isKnown: true }],
    [
      'those that the engine’s arguments ask for, and one a rank',
      eight,
      { engine_args: '--tensor_parallel_size=2 -pp 2', ranks: '2' },
      { engine: ['0', '1', '2', '3'], trainer: ['4', '5'], isShared: false, isKnown: true },
    ],
    ['none for an engine of somebody else', ['0', '1'], { engines: 'http://h:1' }, { ...asEachSees, trainer: ['0'] }],
    [
      'those that remain beside the chosen ones',
      ['0', '1'],
      { trainer_gpus: '0' },
      { engine: ['1'], trainer: ['0'], isShared: false, isKnown: true },
    ],
    ['all for both when there are too few', ['0'], {}, { ...asEachSees, isShared: true }],
    [
      'all for the engine when the trainer’s leave none',
      ['0', '1'],
      { trainer_gpus: '0,1' },
      { engine: null, trainer: ['0', '1'], isShared: true, isKnown: true },
    ],
    [
      'all for the trainer when the engine’s leave too few',
      ['0', '1', '2'],
      { engine_gpus: '1,2', ranks: '2' },
      { engine: ['1', '2'], trainer: null, isShared: true, isKnown: true },
    ],
    ['not at all where a launch command starts the ranks, perhaps elsewhere', eight, { launch: 'srun' }, unknown],
    ['not at all where the engine’s arguments are in a file', eight, { engine_args: '--config vllm.yaml' }, unknown],
    [
      'as the settings say',
      eight,
      { engine_gpus: '3', trainer_gpus: '3' },
      { engine: ['3'], trainer: ['3'], isShared: true, isKnown: true },
    ],
  ])('are divided over engine and trainer: %s', (_, visible, flags, expected) => {
    expect(shares(visible, flags)).toEqual(expected);
  });

  test('that the settings name must be one a rank', () => {
    expect(() => shares(eight, { trainer_gpus: '0', ranks: '2' })).toThrow('`trainer_gpus` names 1 GPU(s) for 2 ranks');
  });

  test('that engine and trainer share have memory for both, unless the engine’s arguments say how much it takes', () => {
    const one = shares(['0']);
    expect(memoryArguments(one, [])).toEqual(['--gpu-memory-utilization', '0.45']);
    expect(shareNote(one, [])).toBe(
      'engine and trainer share a GPU: the engine takes 45 % of its memory (engine_args: --gpu-memory-utilization changes that)',
    );
    for (const given of ['--gpu-memory-utilization=0.6', '--gpu_memory_utilization'])
      expect(memoryArguments(one, [given])).toEqual([]);
    expect(memoryArguments(shares(['0', '1']), [])).toEqual([]);
    expect(shareNote(shares(eight, { launch: 'srun' }), [])).toMatch(/not known here .* name others as engine_gpus/);
  });

  test('are the same by number and by UUID, as NVIDIA’s driver lists them, and unknown without it', () => {
    const folder = mkdtempSync(join(tmpdir(), 'trialgate-gpus-'));
    const listed = [0, 1].map((n) => `GPU ${n}: NVIDIA H200 (UUID: GPU-${n}${n})`).join('\n');
    writeFileSync(join(folder, 'nvidia-smi'), `#!/bin/sh\necho '${listed}'\n`, { mode: 0o755 });
    try {
      vi.stubEnv('PATH', `${folder}:${process.env['PATH']}`);
      vi.stubEnv('CUDA_VISIBLE_DEVICES', undefined);
      const byUuid = configured({ engine_gpus: 'GPU-00' });
      expect(gpuSharesOf(byUuid)).toEqual({ engine: ['0'], trainer: ['1'], isShared: false, isKnown: true });
      vi.stubEnv('CUDA_VISIBLE_DEVICES', 'GPU-11, GPU-00');
      expect(gpuSharesOf(configured())).toEqual({ engine: ['1'], trainer: ['0'], isShared: false, isKnown: true });
      vi.stubEnv('CUDA_VISIBLE_DEVICES', undefined);
      vi.stubEnv('PATH', '/nowhere');
      expect(gpuSharesOf(configured())).toEqual(asEachSees);
    } finally {
      vi.unstubAllEnvs();
      rmSync(folder, { recursive: true });
    }
  });
});
