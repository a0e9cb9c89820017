import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { rewardFunctions, type Reward } from '../../core/run-config/reward.ts';
import type { RowTask } from '../../core/task.ts';
import { sandboxWith, temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import type { Sandbox } from '../sandbox/empty-sandbox.ts';
import { isolation } from '../sandbox/isolation.ts';
import { gradeRow } from './grade-row.ts';
import { Graders } from './graders.ts';

let folder: Awaited<ReturnType<typeof temporaryHome>>;
let graders: Graders;
let sandbox: Sandbox;
let code = '';
const signal = new AbortController().signal;

beforeAll(async () => {
  folder = await temporaryHome();
  graders = new Graders(folder.home);
  sandbox = await sandboxWith(folder.home, { 'result.json': '{"x": 1}', 'out/text.txt': 'written' });
});
afterAll(async () => {
  await graders.close();
  const left = (await readdir(join(folder.home, 'sandboxes'))).filter((name) => name.startsWith('reward-'));
  await folder[Symbol.asyncDispose]();
  expect(left).toEqual([]);
});
afterEach(async () => {
  if (code) await rm(code, { recursive: true });
  code = '';
});

/** Writes a module of reward functions, and returns its path. */
async function moduleWith(text: string): Promise<string> {
  code = await mkdtemp(join(tmpdir(), 'trialgate-code-'));
  await mkdir(join(code, 'own'));
  await writeFile(join(code, 'own/grade.py'), text);
  return join(code, 'own/grade.py');
}

const QUESTION = 'What is 6 times 7?';
const taskOf = (reward: Reward, row: object = {}, prompt: RowTask['prompt'] = QUESTION): RowTask => ({
  kind: 'row',
  name: 'rows#0',
  row: { ...row },
  columns: [],
  prompt,
  messages: typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : prompt,
  rewards: rewardFunctions(reward),
  instruction: '',
  agent: { timeoutSec: 60 },
  verifier: { timeoutSec: 60, env: {} },
  environment: { cpus: 1, memoryMb: 512, storageMb: 100, env: {} },
});

type Given = { row?: object; reply?: string; prompt?: RowTask['prompt']; transcript?: unknown[] };

const grade = (reward: Reward, { row = {}, reply = 'It is 42.', prompt, transcript }: Given = {}) => {
  const task = taskOf(reward, row, prompt);
  const work = {
    sandbox,
    graders,
    transcript: transcript ?? [...task.messages, { role: 'assistant', content: reply }],
    completion_ids: [5, 6, 7],
    training: { global_step: 3, max_steps: 4 },
  };
  return gradeRow(task, work, signal);
};

test('a Python function gets the row, the transcript, the result and the files, and what it prints is kept', async () => {
  const file = await moduleWith(`
def score(row, transcript, result, files):
    print("grading", transcript[-1]["content"])
    assert sorted(files) == ["instruction.md", "out/text.txt", "result.json"], sorted(files)
    return row["weight"] * result["x"] if files["out/text.txt"] == "written" else 0
`);
  expect(await grade(`${file}:score`, { row: { weight: -2.5 } })).toMatchObject({
    rewards: { reward: -2.5 },
    stdout: 'grading It is 42.\n',
  });
});

test('an async function, and one that returns several rewards, work as they are', async () => {
  const file = await moduleWith(`
import asyncio
async def later(row):
    await asyncio.sleep(0.01)
    return 0.5
class Judge:
    async def __call__(self, row):
        await asyncio.sleep(0.01)
        return 0.25
judge = Judge()
def both(transcript, length=10):
    return {"short": len(transcript[-1]["content"]) < length, "polite": 0}
`);
  const reward = { later: `${file}:later`, judge: `${file}:judge`, both: `${file}:both` };
  expect((await grade(reward)).rewards).toEqual({ later: 0.5, judge: 0.25, 'both/short': 1, 'both/polite': 0 });
});

test('a function runs as in a script: on the main thread, without a running loop, with alarms, and an alarm that it leaves ends nothing', async () => {
  const file = await moduleWith(`
import asyncio, signal, threading, time
async def soon():
    await asyncio.sleep(0)
    return 0.5
def runs(row):
    assert threading.current_thread() is threading.main_thread()
    return asyncio.run(soon())
def waits(row):
    return asyncio.new_event_loop().run_until_complete(soon())
class Ended(Exception): pass
def ring(*_): raise Ended
def alarmed(row):
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        time.sleep(60)
    except Ended:
        return 0.75
def forgetful(row):
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    return 1
def returns_awaitable(row):
    return soon()
def threaded(row):
    thread = threading.Thread(target=print, args=("from a thread",))
    thread.start(); thread.join()
    return 0
`);
  const names = ['runs', 'waits', 'alarmed', 'forgetful', 'returns_awaitable', 'threaded'];
  const reward = Object.fromEntries(names.map((name) => [name, { ...one(`${file}:${name}`), processes: 1 }]));
  const { rewards, stdout } = await grade(reward);
  expect(rewards).toEqual({ runs: 0.5, waits: 0.5, alarmed: 0.75, forgetful: 1, returns_awaitable: 0.5, threaded: 0 });
  expect(stdout).toBe('from a thread\n');
  await sleep(200);
  expect((await grade({ forgetful: { ...one(`${file}:forgetful`), processes: 1 } })).rewards).toEqual({ forgetful: 1 });
});

const TRL = `
import re
def length(completions, **kwargs):
    return [float(len(each)) for each in completions]
def ids(completion_ids, **kwargs):
    return [float(sum(each)) for each in completion_ids]
def documented_ids(completions_ids, **kwargs):
    return [float(len(each)) for each in completions_ids]
def pattern(prompts, completions, answer, **kwargs):
    assert prompts == ["${QUESTION}"], prompts
    return [1.0 if re.search(rf"\\b{a}\\b", c) else 0.0 for c, a in zip(completions, answer)]
def messages(prompts, completions, **kwargs):
    return [1.0 if p[-1]["role"] == "user" and re.match("It", c[0]["content"]) else 0.0 for p, c in zip(prompts, completions)]
def curriculum(trainer_state, **kwargs):
    return [trainer_state.global_step / trainer_state.max_steps]
def columns(completions, log_extra, log_metric, **kwargs):
    log_extra("seen", [sorted(kwargs)] * len(completions))
    log_metric("size", len(completions))
    return [0.0 for _ in completions]
class Scaled:
    def __init__(self, by): self.by = by
    def __call__(self, completion_ids, **kwargs): return [self.by * len(each) for each in completion_ids]
scaled = Scaled(10)
async def later(completions, **kwargs):
    return [1.0 if each else 0.0 for each in completions]
def math_only(completions, kind, **kwargs):
    return [1.0 if k == "math" else None for k in kind]
async def code_only(completions, kind, **kwargs):
    return [1.0 if k == "code" else None for k in kind]
def nothing(completions, **kwargs):
    return None
def two(completions, **kwargs):
    return [1.0, 1.0]
`;

test('TRL’s reward functions get texts where the row’s prompt is a text, with all that TRL passes', async () => {
  const file = await moduleWith(TRL);
  const names = ['length', 'ids', 'documented_ids', 'pattern', 'curriculum', 'columns', 'scaled', 'later'];
  const reward = Object.fromEntries(names.map((name) => [name, `${file}:${name}`]));
  const verdict = await grade(reward, { row: { prompt: QUESTION, answer: '42' } });
  expect(verdict.rewards).toEqual({
    length: 9,
    ids: 18,
    documented_ids: 3,
    pattern: 1,
    curriculum: 0.75,
    columns: 0,
    scaled: 30,
    later: 1,
  });
  expect(verdict.stdout).toBe("seen: ['answer', 'completion_ids', 'prompts', 'trainer_state']\nsize: 1\n");
});

test('TRL’s reward functions get messages where the row’s prompt is messages, from the model’s first one on', async () => {
  const file = await moduleWith(TRL);
  const prompt: RowTask['messages'] = [
    { role: 'user', content: 'What is 2 times 3?' },
    { role: 'assistant', content: '6' },
    { role: 'user', content: QUESTION },
  ];
  const reply = { role: 'assistant', content: 'It is 42.' };
  const verdict = await grade(
    { messages: `${file}:messages`, length: `${file}:length` },
    { prompt, transcript: [{ role: 'system', content: 'added by the agent' }, ...prompt, reply] },
  );
  expect(verdict.rewards).toEqual({ messages: 1, length: 1 });
  // Without any completed call there is an empty reply.
  expect((await grade(`${file}:messages`, { prompt, transcript: [] })).rewards).toEqual({ reward: 0 });
});

test('a model’s thinking is a part of TRL’s text, and `reasoning_content` of its messages', async () => {
  const file = await moduleWith(`
def text(completions, **kwargs):
    return [1.0 if c == "<think>hm</think>It is 42." else 0.0 for c in completions]
def messages(completions, **kwargs):
    return [1.0 if c[0]["reasoning_content"] == "hm" else 0.0 for c in completions]
`);
  const transcript = [{ role: 'assistant', reasoning: 'hm', content: 'It is 42.' }];
  expect((await grade(`${file}:text`, { transcript })).rewards).toEqual({ reward: 1 });
  const prompt: RowTask['messages'] = [{ role: 'user', content: QUESTION }];
  expect((await grade(`${file}:messages`, { transcript, prompt })).rewards).toEqual({ reward: 1 });
});

test('a TRL function that returns None for a row is left out of its rewards, and a row for which all do has no reward', async () => {
  const file = await moduleWith(TRL);
  const both = { math: `${file}:math_only`, code: `${file}:code_only` };
  expect((await grade(both, { row: { kind: 'math' } })).rewards).toEqual({ math: 1 });
  expect((await grade(both, { row: { kind: 'code' } })).rewards).toEqual({ code: 1 });
  await expect(grade(both, { row: { kind: 'poem' } })).rejects.toThrow(
    'no reward: each reward function returned None for this row',
  );
});

test.each([
  ['no list', 'nothing', /returned None, not/],
  ['a list of another length', 'two', /returned \[1\.0, 1\.0\], not/],
])('a TRL function that returns %s is refused by its name and value', async (_, name, message) => {
  const file = await moduleWith(TRL);
  await expect(grade(`${file}:${name}`)).rejects.toThrow(message);
});

test('a function that fails on the reply but not on an empty one gives 0, or the empty reply’s reward if that is less', async () => {
  const file = await moduleWith(`
def strict(transcript):
    text = transcript[-1]["content"]
    return -1.0 if text == "" else float(text)
`);
  const verdict = await grade(`${file}:strict`);
  expect(verdict.rewards).toEqual({ reward: -1 });
  expect(verdict.reason).toMatch(
    /works on an empty reply and fails on this one: .*ValueError: could not convert string.*\(grade\.py:4\)/,
  );
  expect(verdict.stderr).toContain('Traceback');
});

test.each([
  ['raises', 'raise KeyError("nothing")', /own\/grade\.py:score: KeyError: 'nothing' \(grade\.py:2\)/],
  ['returns a text', 'return "good"', /returned 'good', not a finite number/],
  ['returns nothing', 'return None', /returned None, not a finite number/],
  ['returns NaN', 'return float("nan")', /returned nan, not a finite number/],
  ['returns more than float32 holds', 'return 1e39', /returned 1e\+39, not a finite number/],
  ['hangs', 'while True: pass', /did not end within 0\.5 s/],
  ['ends its process', 'import os; os._exit(3)', /ended its process with exit code 3/],
  ['is killed', 'import os, signal; os.kill(os.getpid(), signal.SIGKILL)', /ended its process with signal SIGKILL/],
])('a function that %s on every reply ends as a GradeError that names the cause', async (_, body, message) => {
  const file = await moduleWith(`def score(row):\n    ${body}\n`);
  await expect(grade({ ...one(`${file}:score`), seconds: 0.5 })).rejects.toMatchObject({
    name: 'GradeError',
    message: expect.stringMatching(message),
  });
});

const one = (name: string) => {
  const [found] = Object.values(rewardFunctions(name));
  if (!found) throw new Error('no function');
  return found;
};

test('a call that hangs costs only itself: the calls beside it and after it are answered', async () => {
  const file = await moduleWith(`
import asyncio, time
def score(transcript):
    if transcript[-1]["content"] == "hang": time.sleep(60)
    return 1
async def later(transcript):
    if transcript[-1]["content"] == "hang": time.sleep(60)
    await asyncio.sleep(0.2)
    return 1
`);
  for (const name of ['score', 'later']) {
    const reward = { ...one(`${file}:${name}`), seconds: 1, processes: 2 };
    const replies = ['a', 'b', 'hang', 'c', 'd', 'e'];
    const verdicts = await Promise.all(replies.map((reply) => grade(reward, { reply })));
    expect(verdicts.map(({ rewards }) => rewards['reward'])).toEqual([1, 1, 0, 1, 1, 1]);
  }
});

test('a program that ends all processes of the grader costs only its own trial', async () => {
  const file = await moduleWith(`
import os, signal, time
def score(transcript):
    if transcript[-1]["content"] == "kill":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    time.sleep(0.2)
    return 1
`);
  const replies = ['a', 'kill', 'b', 'c'];
  const verdicts = await Promise.all(replies.map((reply) => grade(`${file}:score`, { reply })));
  expect(verdicts.map(({ rewards }) => rewards['reward'])).toEqual([1, 0, 1, 1]);
});

test('a program in the sandbox cannot change the copies of the agents’ files, nor put anything into their place', async () => {
  const file = await moduleWith(`
import os
def score(files):
    folder = files.path.parent
    tried = []
    for attempt in (lambda: os.symlink("/etc", folder / "99"), lambda: os.rmdir(files.path), lambda: (files.path / "new").write_text("x")):
        try:
            attempt()
            tried.append("worked")
        except OSError:
            tried.append("refused")
    print(*tried)
    return 1
`);
  if ((await isolation()).kind === 'none') return;
  expect((await grade(`${file}:score`)).stdout).toBe('refused refused refused\n');
});

test('an error of the network gives no reward where it stays, and the right one where it passes', async () => {
  const file = await moduleWith(`
import os
def away(): raise ConnectionError("the judge is away")
def once(row, transcript):
    if transcript[-1]["content"] and not os.path.exists("/tmp/asked"):
        open("/tmp/asked", "w").close()
        raise ConnectionError("the judge is away")
    return 1
`);
  const online = (name: string) => ({ ...one(`${file}:${name}`), network: 'host' as const });
  await expect(grade(online('away'))).rejects.toThrow('ConnectionError: the judge is away');
  expect((await grade(online('once'))).rewards).toEqual({ reward: 1 });
});

test('a result that is too long counts as none', async () => {
  const file = await moduleWith('def score(result): return 1 if result is None else 0\n');
  const long = await sandboxWith(folder.home, { 'result.json': 'x'.repeat(2_000_000) }, undefined, 'long');
  const task = taskOf(`${file}:score`);
  expect((await gradeRow(task, { sandbox: long, graders, transcript: [] }, signal)).rewards).toEqual({ reward: 1 });
});

test.each([
  ['cannot be imported', 'import nothing_of_this_name', /cannot be imported: ModuleNotFoundError/],
  ['has no such function', 'def grade(row): return 1', /has no function score; there are grade/],
  ['ends its process while it is imported', 'import os; os._exit(1)', /its process ended \(exit code 1\)/],
])('a module that %s is the verifier’s error', async (_, text, message) => {
  const file = await moduleWith(text);
  await expect(grade(`${file}:score`)).rejects.toMatchObject({
    name: 'VerifierError',
    message: expect.stringMatching(message),
  });
});

test('a function sees neither the network, nor the host’s files, nor its environment', async () => {
  const file = await moduleWith(`
import os, socket
def score(row):
    assert not os.path.exists(row["home"]), "it sees the deployment"
    assert "TRIALGATE_SECRET" not in os.environ and "AWS_SECRET" not in os.environ
    try:
        socket.create_connection(("127.0.0.1", row["port"]), 1)
    except OSError:
        return 1
    return 0
`);
  process.env['AWS_SECRET'] = 'secret';
  const { createServer } = await import('node:net');
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => void server.once('listening', resolve));
  const address = server.address();
  const port = address !== null && typeof address === 'object' ? address.port : 0;
  try {
    expect((await grade(`${file}:score`, { row: { home: folder.home, port } })).rewards).toEqual({ reward: 1 });
  } finally {
    server.close();
    delete process.env['AWS_SECRET'];
  }
});

test('`$NAME` in `env` gives the function the worker’s variable, and a missing variable is an error that names it', async () => {
  const file = await moduleWith('import os\ndef score(row): return float(os.environ["LIMIT"])\n');
  process.env['MY_LIMIT'] = '7';
  const reward = { ...one(`${file}:score`), env: { LIMIT: '$MY_LIMIT' } };
  expect((await grade(reward)).rewards).toEqual({ reward: 7 });
  delete process.env['MY_LIMIT'];
  await expect(grade({ ...reward, seconds: 9 })).rejects.toThrow('has the variable MY_LIMIT');
});

test.each([
  ['exact_match', 'It is 42.', { answer: 'It is 42.' }, 1],
  ['exact_match', 'it is 42', { answer: 'It is 42.' }, 0],
  ['numeric', 'So 6 × 7 = 42.', { answer: '6 * 7 = <<6*7=42>>42\n#### 42' }, 1],
  ['numeric', 'It costs $1,234.50 in all.', { answer: '1234.5' }, 1],
  ['numeric', 'The answer is 41, not 42', { answer: '41' }, 1],
  ['numeric', '\\boxed{17} (see step 3)', { answer: 17 }, 1],
  ['numeric', 'I do not know', { answer: '3' }, 0],
  ['numeric', '1e999999999', { answer: '3' }, 0],
  ['numeric', `The answer is${' '.repeat(200_000)}`, { answer: '3' }, 0],
  [
    'code_tests',
    '```python\nprint(int(input()) * 2)\n```',
    {
      tests: [
        { input: '4', output: '8' },
        { input: '1', output: '3' },
      ],
    },
    0.5,
  ],
  ['code_tests', `\`\`\`python${'\n'.repeat(200_000)}`, { tests: [{ input: '4', output: '8' }] }, 0],
  ['code_tests', 'no program', { tests: [{ input: '4', output: '8' }] }, 0],
])('the bundled reward %s gives the reply %j its reward', async (name, reply, row, expected) => {
  expect((await grade(name, { reply, row })).rewards).toEqual({ reward: expected });
});

test('the judge asks a model for a score, and a judge that gives none, or several, is an error', async () => {
  const { createServer } = await import('node:http');
  const asked: string[] = [];
  const several = '{"score": 2} It says {"score": 10}.';
  const thought = '<think>Perhaps {"score": 3}?</think>{"reason": "well", "score": 8}';
  const answers = ['{"reason": "well", "score": 8}', 'I cannot say', 'I cannot say', several, several, thought];
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (data) => (body += String(data)));
    request.on('end', () => {
      asked.push(`${request.headers.authorization} ${body}`);
      response.end(JSON.stringify({ choices: [{ message: { content: answers[asked.length - 1] } }] }));
    });
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => void server.once('listening', resolve));
  const address = server.address();
  const url = `http://127.0.0.1:${address !== null && typeof address === 'object' ? address.port : 0}/v1`;
  const judge = {
    ...one('judge'),
    options: { url, model: 'big', rubric: 'Is it right?', columns: ['answer'] },
    env: { JUDGE_API_KEY: 'k' },
  };
  try {
    expect((await grade(judge, { row: { answer: '42' } })).rewards).toEqual({ reward: 0.8 });
    expect(asked[0]).toMatch(/^Bearer k .*Is it right\?.*What is 6 times 7.*<<<answer [0-9a-f]{16}\\n42/);
    await expect(grade(judge, { row: { answer: '42' } })).rejects.toThrow(/judge: ValueError: the judge gave no score/);
    await expect(grade(judge, { row: { answer: '42' } })).rejects.toThrow(/the judge gave several scores/);
    expect((await grade(judge, { row: { answer: '42' } })).rewards).toEqual({ reward: 0.8 });
  } finally {
    server.close();
  }
});
