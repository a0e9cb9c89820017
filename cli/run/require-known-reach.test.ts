import { symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { resolvePaths } from '../../activities/run/resolve-paths.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { parseRunConfig } from '../../core/run-config/parse-run-config.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import { temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { FREE, requireKnownReach, type Known } from './require-known-reach.ts';

const RUN = { model: 'org/model', tasks: ['tasks/train'], iterations: 1 };
const configOf = (settings: object) => resolvePaths(parseRunConfig({ ...RUN, ...settings }));
const reach = (settings: object, known: Partial<Known> = {}) =>
  requireKnownReach(configOf(settings), { base: null, model: RUN.model, isConfined: true, ...known });
const inline = (more: object) => ({ agents: [{ command: ['true'], ...more }] });
const rows = (more: object) => ({ tasks: [{ rows: 'openai/gsm8k', ...more }], reward: 'exact_match' });

/** What a machine's people alone may name, each with the field of the refusal. */
const REACHING: [field: string, settings: object][] = [
  ['tasks', { tasks: ['/home/somebody/tasks'] }],
  ['tasks', { tasks: [{ folder: '../elsewhere' }] }],
  ['tasks', { tasks: ['.'] }],
  ['tasks', { tasks: ['tasks/../examples/gsm8k'] }],
  ['tasks', { tasks: ['.trialgate/cache'] }],
  ['tasks', { tasks: ['tasks/.hidden'] }],
  ['tasks', rows({})],
  ['tasks', rows({ rows: '/etc/passwd' })],
  ['tasks', rows({ rows: 'examples', split: '../..' })],
  ['tasks', rows({ name: '../..' })],
  ['evaluation.tasks', { evaluation: { tasks: ['/srv/tasks'] } }],
  ['model', { model: '/etc' }],
  ['model', { model: 'other/model' }],
  ['agents', { agents: ['/home/somebody/agent.yaml'] }],
  ['agents', { agents: ['/home/somebody/agent.py:work'] }],
  ['agents', { agents: ['agents/oneshot.yaml'] }],
  ['agents', { agents: ['oneshot', 'trialgate.yaml'] }],
  ['agents', inline({})],
  ['agents', inline({ mounts: { code: 'examples' } })],
  ['agents', inline({ mounts: { keys: '/root/.ssh' } })],
  ['agents', inline({ python: { requirements: ['x @ file:///tmp/x'] } })],
  ['agents', inline({ python: { requirements: ['-r /etc/shadow'] } })],
  ['agents', inline({ python: { venv: '/opt/venv' } })],
  ['agents', inline({ npm: { packages: ['file:/tmp/x'] } })],
  ['agents', inline({ npm: { package_json: 'web/package.json' } })],
  ['agents', inline({ network: 'host' })],
  ['network', { ...inline({}), network: 'host' }],
  ['network', { network: ['example.org'] }],
  ['reward', { reward: '/home/somebody/grade.py:score' }],
  ['reward', { reward: { function: 'exact_match', env: { KEY: '$SECRET' } } }],
  ['reward', { reward: { function: 'exact_match', python: { requirements: ['-r /etc/shadow'] } } }],
  ['reward', { reward: { a: 'numeric', b: { function: 'exact_match', network: 'host' } } }],
  ['reward', { reward: { function: 'exact_match', options: { column: 'x' } } }],
  ['reward', { reward: 'judge' }],
  ['sandbox', { sandbox: { kind: 'slurm', options: ['--prolog=/tmp/x'] } }],
  ['sandbox', { sandbox: { kind: 'container', image: 'elsewhere/image' } }],
  ['verifier_sandbox', { verifier_sandbox: { kind: 'kubernetes', context: 'other' } }],
  ['engines', { engines: ['http://169.254.169.254'] }],
  ['loggers', { loggers: ['csv'] }],
  ['loggers', { loggers: [{ name: 'mlflow', tracking_uri: 'http://elsewhere:5000' }] }],
  ['teacher', { teacher: { url: 'http://elsewhere/v1', model: 'm' } }],
  ['trainer_server', { trainer_server: { url: 'http://elsewhere' }, lora_rank: 8 }],
  ['chat_template_kwargs', { chat_template_kwargs: { enable_thinking: false } }],
];

test.each(REACHING)('a sent run file may not reach anything by an entry of its own of `%s`: %j', (field, settings) => {
  // Of an agent within the file the run's network is not asked any more.
  const refusal = new RegExp(`^(agents|${field}): .*start it once.*npx trialgate train FILE`);
  expect(() => reach(settings)).toThrow(refusal);
  // Nor where an earlier run has another one.
  expect(() => reach(settings, { base: configOf({}) })).toThrow(refusal);
});

test.each(REACHING)('but it may where an earlier run has the same `%s`: %j', (_field, settings) => {
  const base = configOf(settings);
  expect(() => reach({ ...settings, iterations: 5, optim: { lr: 1e-5 } }, { base })).not.toThrow();
  // The record has it as JSON.
  expect(() => reach(settings, { base: parseRunConfig(JSON.parse(JSON.stringify(base))) })).not.toThrow();
});

test('an entry of an earlier run that is changed in any part of it is refused', () => {
  const own = { command: ['work'], mounts: { code: 'examples' }, network: ['example.org'] };
  const base = configOf({ ...inline(own), ...rows({ split: 'test' }) });
  expect(() => reach({ ...inline(own), ...rows({ split: 'test' }), seed: 7 }, { base })).not.toThrow();
  for (const more of [{ env: { A: 'b' } }, { command: ['other'] }, { mounts: { code: '.' } }, { network: 'host' }])
    expect(() => reach({ ...inline({ ...own, ...more }), ...rows({ split: 'test' }) }, { base })).toThrow(/^agents: /);
  expect(() => reach({ ...inline(own), ...rows({ split: '../..' }) }, { base })).toThrow(/^tasks: /);
});

test('what confines the agents of an earlier run is not left out', () => {
  const own = inline({ network: 'host' });
  const base = configOf({ ...own, network: 'gateway', sandbox: 'container', verifier_sandbox: 'bubblewrap' });
  expect(() => requireKnownReach({ ...base, network: null }, { base })).toThrow(/^network: /);
  expect(() => requireKnownReach({ ...base, sandbox: { kind: 'bubblewrap' } }, { base })).toThrow(/^sandbox: /);
  expect(() => requireKnownReach({ ...base, verifier_sandbox: null }, { base })).toThrow(/^verifier_sandbox: /);
  expect(() => requireKnownReach({ ...base, seed: 1 }, { base })).not.toThrow();
});

test('a sent run file may name bundled agents, tasks and rewards, the deployment’s model, and any number and choice', () => {
  for (const settings of [
    { agents: ['oneshot', 'repair'], evaluation: { tasks: ['tasks/eval'], samples: 2 }, network: 'gateway' },
    { tasks: [{ folder: join(REPOSITORY, 'tasks/train/add'), weight: 2 }], reward: { a: 'exact_match', b: 'numeric' } },
    { objective: 'gspo', sampling: { temperature: { default: 0.7 } }, deadlines: { trial: 60 }, reward: 'math_equal' },
  ])
    expect(() => reach(settings)).not.toThrow();
});

test('a link to the bundled tasks is refused, because it may lead elsewhere when the run reads it', async () => {
  await using place = await temporaryHome();
  const link = join(place.home, 'bundled');
  await symlink(join(REPOSITORY, 'tasks/train'), link);
  expect(() => reach({ tasks: [link] })).toThrow(/^tasks: /);
  expect(() => reach({ tasks: [link] }, { base: configOf({ tasks: [link] }) })).not.toThrow();
});

test('an agent that no sandbox confines to the gateway is that of the earlier run, bundled or not', () => {
  const repair = { agents: ['repair'] };
  expect(() => reach(repair, { isConfined: false })).toThrow(/^agents: /);
  for (const open of [{ network: 'host' }, { network: ['example.org'] }, { sandbox: 'container' }]) {
    const base = configOf({ ...open, agents: ['oneshot'] });
    expect(() => reach({ ...open, ...repair }, { base })).toThrow(/^agents: /);
    expect(() => reach({ ...open, agents: ['oneshot'], seed: 7 }, { base })).not.toThrow();
  }
});

test('every setting that may be changed freely is a number, a yes or no, or a choice among names', () => {
  const { properties = {} } = z.toJSONSchema(z.object(runConfig.shape), { io: 'input', unrepresentable: 'any' });
  const found = Object.entries(properties)
    .filter(([name]) => FREE.has(name) || name === 'evaluation')
    .flatMap(([name, schema]) => textsOf(schema, name))
    .filter((path) => !path.startsWith('evaluation.tasks'));
  // A reply ends at these texts; an adapter is for the layers of these names.
  expect(new Set(found)).toEqual(new Set(['sampling.stop', 'sampling.stop.default', 'target_modules']));
  for (const name of FREE) expect(properties).toHaveProperty(name);
  // Each of these was read: a further one must be, before it is here.
  const { evaluation } = properties;
  expect(Object.keys((typeof evaluation === 'object' && evaluation.properties) || {})).toEqual([
    ...['tasks', 'samples', 'before', 'every', 'after'],
  ]);
});

/** Returns the places of a schema that take any text or any value. */
function textsOf(schema: z.core.JSONSchema._JSONSchema, path: string): string[] {
  if (typeof schema === 'boolean') return schema ? [path] : [];
  const { properties = {}, anyOf = [], prefixItems = [], items, additionalProperties: others, type } = schema;
  if (schema.enum || schema.const !== undefined || ['number', 'integer', 'boolean', 'null'].includes(`${type}`))
    return [];
  const within = [
    ...Object.entries(properties).flatMap(([name, each]) => textsOf(each, `${path}.${name}`)),
    ...[...anyOf, ...prefixItems, ...[items ?? []].flat(), ...(others ? [others] : [])].flatMap((each) =>
      textsOf(each, path),
    ),
  ];
  return type === 'object' || type === 'array' || anyOf.length > 0 ? within : [path];
}
