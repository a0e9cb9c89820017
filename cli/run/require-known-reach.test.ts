import { mkdir, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { resolvePaths } from '../../activities/run/resolve-paths.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { parseRunConfig } from '../../core/run-config/parse-run-config.ts';
import { temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { INSTALLS } from '../folders.ts';
import { requireKnownReach, type Known } from './require-known-reach.ts';

const RUN = { model: 'org/model', tasks: ['tasks/train'], iterations: 1 };
const here: Known = { base: null, home: INSTALLS.root, model: undefined, unsandboxed: false };
const configOf = (settings: object) => resolvePaths(parseRunConfig({ ...RUN, ...settings }));
const reach = (settings: object, known: Partial<Known> = {}) =>
  requireKnownReach(configOf(settings), { ...here, ...known });
const inline = (more: object) => ({ agents: [{ command: ['true'], ...more }] });

/** What a machine's people alone may name, each with the field of the refusal. */
const REACHING: [field: string, settings: object][] = [
  ['tasks', { tasks: ['/home/somebody/tasks'] }],
  ['tasks', { tasks: [{ folder: '../elsewhere' }] }],
  ['tasks', { tasks: ['.'] }],
  ['tasks', { tasks: ['.trialgate/cache'] }],
  ['tasks', { tasks: ['tasks/.hidden'] }],
  ['tasks', { tasks: [{ rows: '/etc/passwd' }], reward: 'exact_match' }],
  ['evaluation.tasks', { evaluation: { tasks: ['/srv/tasks'] } }],
  ['model', { model: '/etc' }],
  ['model', { model: '.trialgate' }],
  ['agents', { agents: ['/home/somebody/agent.yaml'] }],
  ['agents', { agents: ['/home/somebody/agent.py:work'] }],
  ['agents', { agents: ['trialgate.yaml'] }],
  ['agents', inline({ mounts: { keys: '/root/.ssh' } })],
  ['agents', inline({ python: { requirements: '/etc/shadow' } })],
  ['agents', inline({ python: { venv: '/opt/venv' } })],
  ['agents', inline({ npm: { package_json: '/home/somebody/package.json' } })],
  ['agents', inline({ network: 'host' })],
  ['agents', inline({ network: ['example.org'] })],
  ['network', { network: 'host' }],
  ['reward', { reward: '/home/somebody/grade.py:score' }],
  ['reward', { reward: { function: 'exact_match', env: { KEY: '$SECRET' } } }],
  ['reward', { reward: { function: 'exact_match', network: 'host' } }],
  ['reward', { reward: 'judge' }],
  ['sandbox', { sandbox: { kind: 'slurm', options: ['--prolog=/tmp/x'] } }],
  ['sandbox', { verifier_sandbox: { kind: 'kubernetes', context: 'other' } }],
  ['engines', { engines: ['http://169.254.169.254'] }],
  ['loggers', { loggers: [{ name: 'mlflow', tracking_uri: 'http://elsewhere:5000' }] }],
  ['loggers', { loggers: [{ name: 'csv', folder: 'tasks/train' }] }],
  ['teacher', { teacher: { url: 'http://elsewhere/v1', model: 'm' } }],
  ['trainer_server', { trainer_server: { url: 'http://elsewhere' }, lora_rank: 8 }],
];

test.each(REACHING)(
  'a sent run file may not reach by `%s` what only the machine’s people may name: %j',
  (field, settings) => {
    expect(() => reach(settings)).toThrow(new RegExp(`^${field}: .*npx trialgate train FILE`));
  },
);

test.each(REACHING)('but it may where an earlier run has the same `%s`: %j', (_field, settings) => {
  expect(() => reach({ ...settings, iterations: 5 }, { base: configOf(settings) })).not.toThrow();
});

test('a sent run file may name the folders of the project, bundled agents and rewards, installed models, and a sandboxed program', () => {
  for (const settings of [
    { model: INSTALLS.smallModel, agents: ['oneshot', 'agents/oneshot.yaml'], evaluation: { tasks: ['tasks/eval'] } },
    { model: join(REPOSITORY, 'tasks'), tasks: [{ rows: 'openai/gsm8k' }], reward: { a: 'exact_match', b: 'numeric' } },
    { ...inline({ mounts: { code: 'examples/gsm8k' }, python: { requirements: ['numpy'] } }), loggers: ['csv'] },
    { sandbox: { kind: 'container', image: 'python:3.12' }, verifier_sandbox: 'bubblewrap' },
  ])
    expect(() => reach(settings)).not.toThrow();
});

test('where agents have no sandbox, a sent run file brings no program of its own', () => {
  const open = { unsandboxed: true };
  expect(() => reach(inline({}), open)).toThrow(/^agents: /);
  expect(() => reach({ reward: { function: 'exact_match', python: { requirements: ['x'] } } }, open)).toThrow(
    /^reward: /,
  );
  expect(() => reach({ agents: ['oneshot'], reward: 'exact_match' }, open)).not.toThrow();
  expect(() => reach(inline({}), { ...open, base: configOf(inline({})) })).not.toThrow();
});

test('a link out of the project does not widen it, nor does a deployment’s folder within it, and the deployment’s own model is known', async () => {
  await using place = await temporaryHome();
  await mkdir(join(place.home, 'inside'));
  await symlink(join(place.home, 'inside'), join(place.home, 'link'));
  expect(() => reach({ tasks: [join(place.home, 'link')] })).toThrow(/^tasks: /);
  expect(() => reach({}, { home: join(REPOSITORY, 'tasks') })).toThrow(/^tasks: /);
  expect(() => reach({}, { home: join(REPOSITORY, 'tasks/train/deployment') })).toThrow(/^tasks: /);
  expect(() => reach({ model: place.home }, { model: place.home })).not.toThrow();
});
