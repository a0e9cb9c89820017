import { expect, test } from 'vitest';
import { parseRunConfig } from './parse-run-config.ts';

const minimal = { model: 'm', tasks: ['t'], iterations: 1 };
const fault = (changes: object): string => {
  try {
    parseRunConfig({ ...minimal, ...changes }, 'run.yaml');
  } catch (error) {
    return error instanceof Error ? error.message : '';
  }
  return 'accepted';
};

test.each([
  ['an unknown key', { itterations: 3 }, 'itterations: unknown setting, did you mean `iterations`?'],
  [
    'an unknown key in an agent',
    { agents: [{ comand: ['x'], command: ['x'] }] },
    'agents.0.comand: unknown setting, did you mean `command`?',
  ],
  [
    'an agent without a command',
    { agents: ['oneshot', { name: 'mine' }] },
    'agents.1.command: an agent has either a `command` or a `function`',
  ],
  [
    'an agent that is neither a text nor an object',
    { agents: [7] },
    'agents.0: Invalid input: expected string or object (found 7)',
  ],
  [
    'two agents of one name',
    {
      agents: [
        { name: 'a', command: ['x'] },
        { name: 'a', command: ['y'] },
      ],
    },
    'agents: two agents in this list have the name a',
  ],
  ['an unknown nested key', { optim: { learning_rate: 1 } }, 'optim.learning_rate: unknown setting'],
  [
    'a wrong type',
    { iterations: 'three' },
    'iterations: Invalid input: expected number, received string (found "three")',
  ],
  ['a negative count', { group_size: -4 }, 'group_size: Too small'],
  ['a half group', { groups_per_iteration: 1.5 }, 'groups_per_iteration: '],
  ['a group without spread', { group_size: 1 }, 'group_size: '],
  ['nothing to train on', { tasks: [] }, 'tasks: '],
  ['a reward treatment that does not exist', { truncated: 'ignore' }, 'truncated: '],
  [
    'more trials than are used, which are cut and go on',
    { over_sampling: 1, stragglers: 'carry_over', max_staleness: 1 },
    'over_sampling: it cuts',
  ],
  [
    'an adapter that is sent',
    { lora_rank: 8, weight_broadcast: { type: 'nccl' } },
    'weight_broadcast.type: engines load LoRA adapters from the shared folder only',
  ],
  [
    'an engine that is no URL',
    { engines: ['localhost:8000'] },
    'engines.0: an engine is http://host:port or unix:/path.sock',
  ],
  [
    'an engine that cannot be trained',
    { engines: ['openai+http://localhost:8000'] },
    'engines.0: is no engine for a run: servers of this kind return no token ids',
  ],
  [
    'an engine that cannot be trained beside one that can, also if nothing is trained',
    { iterations: 0, engines: ['http://localhost:8000', 'openai+http://localhost:8001'] },
    'engines.1: takes no weights, and another engine of this list does: name only servers that take none',
  ],
])('a run file with %s is refused with the path of the setting', (_, changes, expected) => {
  expect(fault(changes)).toContain(`run.yaml is not valid:\n  ${expected}`);
});

test('a run file that trains nothing may name only engines that cannot be trained, whose model is then evaluated as it is served', () => {
  const engines = ['openai+https://host/api/v1', 'openai+relay:w'];
  expect(parseRunConfig({ model: 'm', tasks: ['t'], iterations: 0, engines })).toMatchObject({ engines });
});

test('a run file with a text that PostgreSQL cannot store is refused', () => {
  expect(fault({ sampling: { stop: ['\0'] } })).toContain('run.yaml is not valid:\n  a text has the character NUL');
});

test('a run file that is not an object is refused', () => {
  expect(() => parseRunConfig([1], 'run.json')).toThrow('run.json is not valid');
});

test.each([
  { groups_per_iteration: 1e6 },
  { group_size: 1e5 },
  { over_sampling: 1e5 },
  { evaluation: { samples: 1e5 } },
  { filter_groups: { max_replaced: 1e6 } },
])('a run with more groups or trials than a worker can list is refused: %j', (settings) => {
  expect(fault(settings)).toMatch(/10000/);
});
