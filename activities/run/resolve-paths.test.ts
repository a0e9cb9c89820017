import { homedir } from 'node:os';
import { expect, test } from 'vitest';
import { REPOSITORY } from '../../core/repository.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import { resolveModel, resolvePaths } from './resolve-paths.ts';

test('the relative paths of a run file are resolved from its folder, and names stay names', () => {
  const config = runConfig.parse({
    model: 'someone/model',
    tasks: ['tasks', '/elsewhere/tasks'],
    agents: ['oneshot', './mine/agent.yaml', 'other.yaml', { command: ['x'], mounts: { data: '../data' } }],
    iterations: 1,
    evaluation: { tasks: ['held-out'] },
  });
  expect(resolvePaths(config, '/runs/first')).toMatchObject({
    model: 'someone/model',
    tasks: ['/runs/first/tasks', '/elsewhere/tasks'],
    agents: [
      'oneshot',
      '/runs/first/mine/agent.yaml',
      '/runs/first/other.yaml',
      { command: ['x'], mounts: { data: '/runs/data' } },
    ],
    evaluation: { tasks: ['/runs/first/held-out'] },
  });
});

test('a model is a folder, or keeps its name when there is no such folder', () => {
  expect(resolveModel('tasks')).toBe(`${REPOSITORY}/tasks`);
  expect(resolveModel('someone/model')).toBe('someone/model');
  expect(resolveModel('/not/there')).toBe('/not/there');
  expect(resolveModel('~/.')).toBe(homedir());
});
