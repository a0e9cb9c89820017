import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { expect, onTestFinished, test as base } from 'vitest';
import { isSlept } from '../../activities/sandbox/conformance/checks.ts';
import { isolation } from '../../activities/sandbox/isolation.ts';
import { temporaryHome, writeFiles } from '../../tests/support/harness/sandbox-fixtures.ts';
import { until } from '../../tests/support/harness/until.ts';
import { serveSandboxes } from './serve.ts';

const test = base.skipIf((await isolation()).kind !== 'bubblewrap');

type Answer = { id: number | null; result?: Record<string, unknown>; error?: { code: string; message: string } };

/** Serves sandboxes of a task with one file. `ask` sends a request and returns its answer. */
async function served(files: Record<string, string> = {}) {
  const folder = await temporaryHome();
  const { home } = folder;
  const task = join(home, 'a-task');
  await writeFiles(task, {
    'task.toml': '[environment.env]\nFROM_TASK = "yes"\n',
    'instruction.md': 'Do it.',
    'tests/test.sh': 'exit 0',
    'environment/data.txt': 'data',
    ...files,
  });
  const input = new PassThrough();
  const stop = new AbortController();
  const waiting = new Map<number, (answer: Answer) => void>();
  const unasked: Answer[] = [];
  const ended = serveSandboxes(
    input,
    (line) => {
      const answer: Answer = JSON.parse(line);
      const resolve = answer.id === null ? undefined : waiting.get(answer.id);
      if (resolve) resolve(answer);
      else unasked.push(answer);
    },
    { setting: { kind: 'bubblewrap' }, home, signal: stop.signal, report: () => {} },
  );
  let last = 0;
  const send = (request: object): { id: number; answer: Promise<Answer> } => {
    last += 1;
    const id = last;
    const { promise, resolve } = Promise.withResolvers<Answer>();
    waiting.set(id, resolve);
    input.write(`${JSON.stringify({ id, ...request })}\n`);
    return { id, answer: promise };
  };
  onTestFinished(async () => {
    input.end();
    await ended.catch(() => {});
    await folder[Symbol.asyncDispose]();
  });
  const ask = (request: object) => send(request).answer;
  const started = await ask({ do: 'start', task, folders: ['/tests'] });
  const sandbox = started.result?.['sandbox'];
  const run = (script: string, more: object = {}) =>
    send({ do: 'run', sandbox, argv: ['bash', '-c', script], seconds: 60, ...more });
  return { home, task, started, sandbox, ask, send, run, input, stop, ended, unasked };
}

/** Waits for the file by which a program says that it runs. */
async function up(home: string, sandbox: unknown): Promise<void> {
  const file = join(home, 'sandboxes', `${String(sandbox)}.1`, 'work/up');
  await until(async () => (await readFile(file, 'utf8').catch(() => '')) !== '');
}

/** The folders of sandboxes that a deployment has. */
const left = async (home: string): Promise<string[]> =>
  (await readdir(join(home, 'sandboxes')).catch(() => [])).filter((name) => name.startsWith('served-'));

test('a program runs in the task’s environment, and its files stay for the next one', async () => {
  const { started, run } = await served();
  expect(started.result).toEqual({ sandbox: expect.stringMatching(/^served-/), cwd: '/app' });
  const first = await run('cat data.txt; echo $FROM_TASK $MINE; echo kept > /tests/mine; echo error >&2; exit 3', {
    env: { MINE: 'own' },
  }).answer;
  expect(first.result).toMatchObject({ reason: 'exited', exit_code: 3, stdout: 'datayes own\n', stderr: 'error\n' });
  expect((await run('cat /tests/mine').answer).result).toMatchObject({ stdout: 'kept\n' });
});

test('a program reads the file that is its standard input, and the folders of this host that it was given', async () => {
  const { home, task, ask, send } = await served();
  const [input, readable] = [join(home, 'input'), join(home, 'readable')];
  await writeFile(input, 'given', { mode: 0o644 });
  await mkdir(readable);
  await writeFile(join(readable, 'tool'), '#!/bin/sh\necho a tool\n', { mode: 0o755 });
  const { result } = await ask({ do: 'start', task, readable: [readable], path: [readable] });
  const sandbox = result?.['sandbox'];
  const argv = ['sh', '-c', 'cat; tool'];
  const ran = await send({ do: 'run', sandbox, argv, stdin: input, seconds: 60 }).answer;
  expect(ran.result).toMatchObject({ stdout: 'givena tool\n' });
});

test('a cancelled program ends, and the sandbox can be used again', async () => {
  const { home, run, send, sandbox } = await served();
  const running = run('echo up > up; sleep 4861');
  await up(home, sandbox);
  await send({ do: 'cancel', request: running.id }).answer;
  expect((await running.answer).result).toMatchObject({ reason: 'cancelled' });
  expect((await run('echo again').answer).result).toMatchObject({ stdout: 'again\n' });
});

test('at the end of the input, and when it is stopped, nothing is left of a sandbox', async () => {
  const one = await served();
  void one.run('echo up > up; sleep 4862');
  await up(one.home, one.sandbox);
  expect(await left(one.home)).toHaveLength(1);
  one.input.end();
  await one.ended;
  expect(await left(one.home)).toEqual([]);
  expect(await isSlept('4862')).toBe(false);
  const other = await served();
  await other.ask({ do: 'stop', sandbox: other.sandbox });
  expect(await left(other.home)).toEqual([]);
});

test('a signal ends what runs and removes the sandboxes', async () => {
  const { home, run, stop, ended, sandbox } = await served();
  const running = run('echo up > up; sleep 4863');
  await up(home, sandbox);
  stop.abort(new Error('stopped'));
  await expect(ended).rejects.toThrow('stopped');
  expect((await running.answer).result).toMatchObject({ reason: 'cancelled' });
  expect(await left(home)).toEqual([]);
  expect(await isSlept('4863')).toBe(false);
});

test('a start that is cancelled leaves no sandbox', async () => {
  const { home, send, task } = await served();
  const starting = send({ do: 'start', task });
  await send({ do: 'cancel', request: starting.id }).answer;
  expect(await starting.answer).toMatchObject({ error: { message: 'cancelled' } });
  expect(await left(home)).toHaveLength(1);
});

test('a wrong request gets an error with its number, and the next one is answered', async () => {
  const { ask, run, input, unasked, task } = await served();
  expect(await ask({ do: 'fly' })).toMatchObject({ error: { code: 'bad_input' } });
  expect(await ask({ do: 'run', sandbox: 'nobody', argv: ['true'], seconds: 1 })).toMatchObject({
    error: { code: 'not_found', message: 'there is no sandbox "nobody"' },
  });
  expect(await ask({ do: 'start', task: `${task}/nowhere` })).toMatchObject({ error: { code: 'bad_input' } });
  input.write('no JSON\n');
  expect((await run('echo on').answer).result).toMatchObject({ stdout: 'on\n' });
  expect(unasked).toEqual([{ id: null, error: { code: 'bad_input', message: expect.stringContaining('no JSON') } }]);
});
