import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { runConfig, type RunConfig } from '../../core/run-config/run-config.ts';
import { runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { listTasks } from './list-tasks.ts';
import { findTask, readRowTask } from './row-task.ts';
import { missingSources, storeRows } from './store-rows.ts';

const store = useDatabase();
let folder = '';
let file = '';
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'trialgate-rows-'));
  file = join(folder, 'train.jsonl');
  await store.db.delete(runs);
});
afterEach(() => rm(folder, { recursive: true }));

const LINES = ['{"q": "1 + 1", "answer": 2}', '{"q": "2 + 2", "answer": 4.0, "agent_name": "chat"}'];
const configOf = (changes: object = {}): RunConfig =>
  runConfig.parse({
    model: 'm',
    iterations: 1,
    reward: 'exact_match',
    tasks: [{ rows: file, prompt: 'What is {q}?', columns: ['q'] }],
    ...changes,
  });

async function stored(config: RunConfig, lines: string[] = LINES): Promise<void> {
  await writeFile(file, lines.join('\n'));
  await store.db.transaction(async (tx) => {
    await tx.insert(runs).values({ id: 'r', config }).onConflictDoNothing();
    await storeRows(tx, 'r', config, folder);
  });
}

test('each row is a task, whose prompt is filled in, whose reward is the run’s, and whose agent may be its own', async () => {
  const config = configOf();
  await stored(config);
  expect(await listTasks(store.db, 'r', config)).toEqual([
    { task: `${file}#0`, agent: 'oneshot' },
    { task: `${file}#1`, agent: 'chat' },
  ]);
  const task = await findTask(store.db, 'r', `${file}#1`, config);
  expect(task).toMatchObject({
    kind: 'row',
    name: 'train.jsonl#1',
    instruction: 'What is 2 + 2?',
    messages: [{ role: 'user', content: 'What is 2 + 2?' }],
    columns: ['q'],
    rewards: { reward: { function: 'exact_match' } },
  });
  expect(JSON.stringify(task)).toContain('"answer":4.0');
});

test('a file that changes after the run began changes nothing in the run, also when it is resumed', async () => {
  const config = configOf();
  await stored(config);
  await stored(config, ['{"q": "9 + 9"}']);
  expect(await listTasks(store.db, 'r', config)).toHaveLength(2);
  expect(await findTask(store.db, 'r', `${file}#0`, config)).toMatchObject({ instruction: 'What is 1 + 1?' });
  expect(await missingSources(store.db, 'r', config)).toEqual([]);
});

test('a bad row refuses the run, and nothing of it is stored', async () => {
  const config = configOf();
  await expect(stored(config, [LINES[0] ?? '', '{"answer": 3}'])).rejects.toThrow(
    `${file}:2: the prompt names the column \`q\`, which does not exist; there are answer`,
  );
  expect(await store.db.select().from(runs)).toEqual([]);
});

test.each([
  [
    'an agent that does not exist',
    '{"q": "1", "agent_name": "nobody"}',
    /:1: agent_name: agents: there is no .*nobody/,
  ],
  [
    'the path of a program',
    '{"q": "1", "agent_name": "/tmp/agent.yaml"}',
    /:1: agent_name: \/tmp\/agent\.yaml is a path/,
  ],
  ['a character that cannot be stored', '{"q": "a\\u0000b"}', /:1: a text has the character NUL/],
])('a row with %s is refused with its line', async (_, line, message) => {
  await expect(stored(configOf(), [line])).rejects.toThrow(message);
});

test('a row can be read from its file without a run', async () => {
  await writeFile(file, LINES.join('\n'));
  const read = (index: number) => readRowTask(`${file}#${index}`, { label: file, index }, configOf(), folder);
  expect(await read(1)).toMatchObject({ instruction: 'What is 2 + 2?' });
  await expect(read(2)).rejects.toThrow('has 2 rows, the first of which is 0');
});

test.each([
  ['rows without a reward', { reward: null }, 'rows need a `reward`'],
  ['the same rows twice', { tasks: [{ rows: 'a.jsonl' }, { rows: 'a.jsonl' }] }, 'the rows a.jsonl are named twice'],
  [
    'rows that are held out with another prompt',
    { tasks: [{ rows: 'a.jsonl' }], evaluation: { tasks: [{ rows: 'a.jsonl', prompt: '{b}' }] } },
    'have another prompt, reward, limit or columns than under `tasks`',
  ],
])('a run file with %s is refused', (_, changes, message) => {
  expect(() => configOf(changes)).toThrow(message);
});
