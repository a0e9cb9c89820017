import { describe, expect, test } from 'vitest';
import { resolveConfig } from '../config/resolve.ts';
import { memoryArguments, shareGpus, shareNote } from './gpus.ts';

function shares(visible: string[], flags: Record<string, string> = {}) {
  return shareGpus(
    resolveConfig({ cwd: '/', env: {}, flags: { home: '/nowhere', device: 'cuda', ...flags } }).config,
    visible,
  );
}

describe('the GPUs of a machine', () => {
  const eight = Array.from({ length: 8 }, (_, index) => String(index));

  test.each([
    ['one each', ['0', '1'], {}, { engine: ['0'], trainer: ['1'], isShared: false }],
    [
      'those that the engine’s arguments ask for, and one a rank',
      eight,
      { engine_args: '--tensor-parallel-size 4', ranks: '2' },
      { engine: ['0', '1', '2', '3'], trainer: ['4', '5'], isShared: false },
    ],
    [
      'none for an engine of somebody else',
      ['0', '1'],
      { engines: 'http://h:1' },
      { engine: null, trainer: ['0'], isShared: false },
    ],
    [
      'those that remain beside the chosen ones',
      ['0', '1'],
      { trainer_gpus: '0' },
      { engine: ['1'], trainer: ['0'], isShared: false },
    ],
    ['all for both when there are too few', ['0'], {}, { engine: null, trainer: null, isShared: true }],
    [
      'all for ranks that a launch command starts',
      eight,
      { launch: 'srun {python}' },
      { engine: null, trainer: null, isShared: true },
    ],
    [
      'as the settings say',
      eight,
      { engine_gpus: '3', trainer_gpus: '3' },
      { engine: ['3'], trainer: ['3'], isShared: true },
    ],
    ['by UUID', ['GPU-a', 'GPU-b'], {}, { engine: ['GPU-a'], trainer: ['GPU-b'], isShared: false }],
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
    expect(memoryArguments(one, ['--gpu-memory-utilization=0.6'])).toEqual([]);
    expect(memoryArguments(shares(['0', '1']), [])).toEqual([]);
  });
});
