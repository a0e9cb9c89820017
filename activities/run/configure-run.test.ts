import { Client } from '@temporalio/client';
import { eq } from 'drizzle-orm';
import { resolve } from 'node:path';
import { beforeAll, beforeEach, expect, test } from 'vitest';
import type { Database } from '../../store/database.ts';
import { runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { configureRun } from './configure-run.ts';
import type { Deps } from '../deps.ts';
import { Graders } from '../reward/graders.ts';
import { HostSandboxes } from '../sandbox/host-sandboxes.ts';
import { runConfig } from '../../core/run-config/run-config.ts';

const store = useDatabase();
let db: Database;
let configure: ReturnType<typeof configureRun>;
beforeAll(async () => {
  db = store.db;
  const deps: Deps = {
    db,
    temporal: new Client(),
    gatewayUrls: [],
    home: '/',
    secret: '',
    hostQueue: '',
    sandboxes: new HostSandboxes('/', 1),
    graders: new Graders('/'),
  };
  configure = configureRun(deps);
});

const before = runConfig.parse({
  model: 'm',
  tasks: [resolve('tasks/train')],
  iterations: 3,
  reward_weights: { tests: 1 },
});
beforeEach(async () => {
  await db.delete(runs);
  await db.insert(runs).values({ id: 'first', config: before });
});
const stored = async () => (await db.select().from(runs).where(eq(runs.id, 'first')))[0]?.config;

test('a change of a run’s settings is stored and leaves the run’s other settings as they are', async () => {
  const after = await configure({
    runId: 'first',
    changes: { optim: { lr: 1e-5 }, group_size: 16, reward_weights: { style: 0.2 } },
  });
  expect(after).toEqual({
    ...before,
    optim: { ...before.optim, lr: 1e-5 },
    group_size: 16,
    reward_weights: { tests: 1, style: 0.2 },
  });
  expect(await stored()).toEqual(after);
});

test.each([
  [
    'a value that is none',
    { optim: { lr: -1 }, group_size: 16 },
    /^the change is not valid:\n {2}optim\.lr: Too small.*\(found -1\)$/,
  ],
  ['an unknown setting', { optim: { learning_rate: 1 } }, /optim\.learning_rate: unknown setting/],
  [
    'another model',
    { model: 'n' },
    /^`model` cannot change while a run is under way: fork it instead \(npx trialgate fork first@VERSION\)$/,
  ],
  ['other tasks and engines', { tasks: ['u'], engines: [] }, /^`tasks`, `engines` cannot change/],
  ['another head', { head_dtype: 'float32' }, /^`head_dtype` cannot change/],
  ['other loggers', { loggers: ['csv'] }, /^`loggers` cannot change/],
  ['held-out tasks that are not there', { evaluation: { tasks: ['/nowhere'] } }, /\/nowhere/],
  ['nothing', {}, /^expected settings such as/],
])('a change of a run’s settings to %s is refused and changes no setting', async (_, changes, message) => {
  await expect(configure({ runId: 'first', changes })).rejects.toMatchObject({
    type: 'bad_input',
    nonRetryable: true,
    message: expect.stringMatching(message),
  });
  expect(await stored()).toEqual(before);
});

test('changes of a run’s settings that arrive at the same time are all stored', async () => {
  const changes = [{ group_size: 4 }, { groups_per_iteration: 5 }, { optim: { lr: 0.5 } }, { optim: { eps: 0.25 } }];
  await Promise.all(changes.map((each) => configure({ runId: 'first', changes: each })));
  expect(await stored()).toMatchObject({ group_size: 4, groups_per_iteration: 5, optim: { lr: 0.5, eps: 0.25 } });
});
