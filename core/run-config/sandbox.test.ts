import { expect, it } from 'vitest';
import { DEFAULT_POD_IMAGE, imageWithout, sandboxSetting } from './sandbox.ts';

it('a kind of sandbox is its name, or its name with settings', () => {
  expect(sandboxSetting.parse('slurm')).toEqual({ kind: 'slurm' });
  const setting = { kind: 'slurm', partition: 'cpu', account: 'group', options: ['--qos=high', '--exclusive'] };
  expect(sandboxSetting.parse(setting)).toEqual(setting);
  const pods = { kind: 'kubernetes', namespace: 'sandboxes', runtime_class: 'gvisor', node_selector: { pool: 'cpu' } };
  expect(sandboxSetting.parse(pods)).toEqual(pods);
  expect(sandboxSetting.safeParse({ ...pods, namespace: 'a/b' }).success).toBe(false);
});

it('a pod always has an image', () => {
  expect(imageWithout({ kind: 'kubernetes' })).toBe(DEFAULT_POD_IMAGE);
  expect(imageWithout({ kind: 'kubernetes', image: 'own:1' })).toBe('own:1');
  expect(imageWithout({ kind: 'container' })).toBe(null);
});

it.each([
  { partition: '--wrap=id' },
  { account: '' },
  { options: ['-p', 'cpu'] },
  { options: ['--qos high'] },
  { options: ['id'] },
  { image: 'python:3' },
])('settings that srun would take for something else are refused: %j', (settings) => {
  expect(sandboxSetting.safeParse({ kind: 'slurm', ...settings }).success).toBe(false);
});
