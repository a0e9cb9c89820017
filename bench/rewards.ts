/**
 * Measures how many rows a Python reward function grades in a second, warm in its sandbox (`activities/reward/`), compared with a process for
 * each row: plain, and in a sandbox of its own, as the tests of a task folder run.
 *
 *   node bench/rewards.ts --rows 1000 --processes 100
 */
import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { UNTRAINED } from '../activities/reward/grade-row.ts';
import { Graders } from '../activities/reward/graders.ts';
import { createSandbox } from '../activities/sandbox/create-sandbox.ts';
import { destroySandbox } from '../activities/sandbox/destroy-sandbox.ts';
import { isolation } from '../activities/sandbox/isolation.ts';
import { verify } from '../activities/sandbox/verify.ts';
import { rewardFunction } from '../core/run-config/reward.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { table } from '../cli/show/table.ts';
import { taskWith, temporaryHome } from '../tests/support/harness/sandbox-fixtures.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';
import { openBackend } from '../activities/sandbox/backends.ts';
import { bubblewrapBackend } from '../activities/sandbox/bubblewrap-backend.ts';

const backend = await openBackend();

const run = promisify(execFile);
const { rows, processes, concurrency } = optionsOf(import.meta.url, { rows: 1000, processes: 100, concurrency: 64 });
const signal = shutdownSignal();

const GRADE = `import re, sys

def score(row, transcript):
    found = re.findall(r"-?[0-9]+", transcript[-1]["content"])
    return float(bool(found) and found[-1] == str(row["answer"]))

if __name__ == "__main__":
    print(score({"answer": 42}, [{"content": "It is 42."}]))
`;

/** Runs `count` pieces of work, `concurrency` at a time. Returns the seconds. */
async function timed(count: number, work: (index: number) => Promise<void>): Promise<number> {
  let next = 0;
  const lane = async () => {
    while (next < count) {
      signal.throwIfAborted();
      await work(next++);
    }
  };
  const start = performance.now();
  await Promise.all(Array.from({ length: concurrency }, lane));
  return (performance.now() - start) / 1000;
}

await using place = await temporaryHome();
const { home } = place;
await mkdir(join(home, 'code'));
const file = join(home, 'code/grade.py');
await writeFile(file, GRADE);
const here = await isolation();

async function warm(count: number, withFiles: boolean): Promise<number> {
  const graders = new Graders(home);
  const given = rewardFunction.parse({ function: `${file}:score` });
  const sandbox = await createSandbox({
    backend,
    home,
    trialId: 'work',
    attempt: 1,
    task: await taskWith(home, 'true'),
  });
  const request = (answer: number) => ({
    row: { answer },
    prompt: 'What is it?',
    transcript: [{ role: 'assistant', content: `It is ${answer}.` }],
    completion_ids: [],
    training: UNTRAINED,
    result: null,
    files: withFiles ? sandbox.work : null,
  });
  await graders.grade(given, request(1), signal);
  const seconds = await timed(count, async (answer) => {
    const { value } = await graders.grade(given, request(answer), signal);
    if (value !== 1) throw new Error(`row ${answer} got ${JSON.stringify(value)}`);
  });
  await graders.close();
  await destroySandbox({ backend, home, trialId: 'work', attempt: 1 });
  return seconds;
}

async function sandboxed(count: number): Promise<number> {
  const task = await taskWith(home, 'python3 $TESTS_DIR/grade.py > $LOGS_DIR/verifier/reward.txt', {
    'tests/grade.py': GRADE,
  });
  return timed(count, async (index) => {
    const key = { home, trialId: `t${index}`, attempt: 1 };
    const sandbox = await createSandbox({ backend, ...key, task });
    await verify({ task, sandbox, backend: bubblewrapBackend(here), signal });
    await destroySandbox({ ...key, backend });
  });
}

const cells: [string, number, number][] = [
  [
    'a process for each row (python3 grade.py)',
    processes,
    await timed(processes, async () => void (await run('python3', [file]))),
  ],
  ['a sandbox and a process for each row (tests of a task folder)', processes, await sandboxed(processes)],
  ['warm, without files', rows, await warm(rows, false)],
  ["warm, with a copy of the agent's files", rows, await warm(rows, true)],
];
console.log(`${JSON.stringify(provenance(), null, 2)}\n`);
console.log(
  table(
    ['how', 'rows', 'seconds', 'rows a second'],
    cells.map(([how, count, seconds]) => [how, String(count), seconds.toFixed(2), (count / seconds).toFixed(0)]),
  ),
);
process.exit(0);
