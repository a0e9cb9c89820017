import { existsSync } from 'node:fs';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { agentFile } from '../../core/run-config/agent-file.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import { readOutputs } from '../../store/queries/outputs.ts';
import { SECRET, useGateway } from '../../tests/support/harness/gateways.ts';
import { taskWith, temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { readTrialRecord, transcript } from '../show/trial-transcript.ts';
import { tryAgent } from './try-agent.ts';

const gateway = useGateway();
const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });
const GRADED =
  'echo judging; grep -q right answer.txt && reward=1 || reward=0; echo $reward > $LOGS_DIR/verifier/reward.txt';

const placeIn = (home: string) => ({
  db: gateway.db,
  gatewayUrl: gateway.gateway.url,
  secret: SECRET,
  home,
  unsandboxed: true,
  report: () => {},
});

/** Tries an agent, given as a shell command, on a task with this verifier. */
async function tried(command: string, { judge = GRADED, signal = new AbortController().signal } = {}) {
  await using folder = await temporaryHome();
  const task = await taskWith(folder.home, judge);
  const keep = join(folder.home, 'kept');
  const place = placeIn(folder.home);
  const agent = agentFile.parse({ command: ['sh', '-c', command] });
  const id = await tryAgent({ task: task.folder, agent, config, keep }, place, signal);
  const sandboxes = join(folder.home, 'sandboxes');
  return {
    trial: await readTrialRecord(gateway.db, id),
    kept: existsSync(keep) ? await readdir(keep) : [],
    left: existsSync(sandboxes) ? (await readdir(sandboxes)).filter((name) => !name.startsWith('.')) : [],
  };
}

test('a trial that is tried is verified and sealed, what its programs printed is kept, and no sandbox is left', async () => {
  const { trial, kept, left } = await tried('echo working; echo careful >&2; echo right > answer.txt');
  expect(trial).toMatchObject({ outcome: 'scored', rewards: { reward: 1 }, runId: null });
  expect(trial.outputs).toEqual([
    { attempt: 1, program: 'agent', stdout: 'working\n', stderr: 'careful\n' },
    { attempt: 1, program: 'verifier', stdout: 'judging\n', stderr: '' },
  ]);
  expect(kept).toContain('answer.txt');
  expect(left).toEqual([]);
  expect(transcript(trial)).toContain('▌agent, standard error\ncareful');
});

test('the reason of an agent that crashed names its exception, and its whole standard error is kept', async () => {
  const { trial } = await tried('printf "Traceback\\nKeyError: 7\\nDuring task with name model\\n" >&2; exit 1');
  expect(trial).toMatchObject({
    outcome: 'agent_error',
    reason: expect.stringContaining('exit code 1: KeyError: 7'),
    rewards: { reward: 0 },
  });
  expect((await readOutputs(gateway.db, trial.id))[0]?.stderr).toContain('During task with name model');
});

test('a verifier that gives the untouched task no reward either ends the trial as verifier_error, with what it printed', async () => {
  const { trial } = await tried('true', { judge: 'echo no reward today; exit 3' });
  expect(trial).toMatchObject({ outcome: 'verifier_error', rewards: null });
  expect(trial.outputs[1]).toMatchObject({ program: 'verifier', stdout: 'no reward today\n' });
});

test('a row is tried without a run: the reward function gets the row, the transcript and the result', async () => {
  await using folder = await temporaryHome();
  const rows = join(folder.home, 'data/train.jsonl');
  await mkdir(join(folder.home, 'data'));
  await writeFile(rows, '{"q": "first"}\n{"q": "second", "answer": 42}\n');
  await writeFile(join(folder.home, 'data/grade.py'), GRADE);
  const settings = runConfig.parse({
    model: 'm',
    iterations: 1,
    tasks: [{ rows, prompt: 'What is the {q}?' }],
    reward: { function: `${join(folder.home, 'data/grade.py')}:score` },
  });
  const tryout = { task: `${rows}#1`, agent: 'chat', config: settings, keep: null };
  const id = await tryAgent(tryout, placeIn(folder.home), new AbortController().signal);
  const trial = await readTrialRecord(gateway.db, id);
  expect(trial).toMatchObject({ outcome: 'scored', rewards: { reward: 42 }, task: `${rows}#1` });
  expect(trial.outputs.at(-1)).toMatchObject({ program: 'verifier', stdout: 'user: What is the second?\nassistant\n' });
  expect((await readdir(join(folder.home, 'sandboxes'))).filter((name) => !name.startsWith('.'))).toEqual([]);
});

const GRADE = `
def score(row, transcript, result):
    print(transcript[0]["role"] + ":", transcript[0]["content"])
    print(transcript[1]["role"])
    return row["answer"] if transcript[1]["content"] and result is None else -1
`;

test('the tests of a task folder find the agent’s conversation in a file', async () => {
  const judge =
    'python3 -c "import json, os; print(json.load(open(os.environ[\'TRANSCRIPT_FILE\'])))"; echo 1 > $LOGS_DIR/verifier/reward.txt';
  const { trial } = await tried('true', { judge });
  expect(trial.outputs.at(-1)?.stdout).toBe('[]\n');
});

test('a trial that is interrupted is sealed as cancelled', async () => {
  const stop = new AbortController();
  setTimeout(() => stop.abort(new Error('interrupted')), 500);
  const before = new Set((await gateway.db.query.trials.findMany()).map(({ id }) => id));
  await expect(tried('sleep 60', { signal: stop.signal })).rejects.toThrow('interrupted');
  const [trial] = (await gateway.db.query.trials.findMany()).filter(({ id }) => !before.has(id));
  expect(trial).toMatchObject({ outcome: 'cancelled', reason: 'interrupted' });
});

test('a task and an agent that do not exist are refused before a trial is opened', async () => {
  await using folder = await temporaryHome();
  await mkdir(join(folder.home, 'empty'));
  await writeFile(join(folder.home, 'agent.yaml'), 'command: [x]');
  const place = placeIn(folder.home);
  const tryout = { task: join(folder.home, 'empty'), agent: 'oneshot', config, keep: null };
  const count = await gateway.db.query.trials.findMany();
  await expect(tryAgent(tryout, place, new AbortController().signal)).rejects.toThrow(/task\.toml/);
  const task = (await taskWith(folder.home, 'true')).folder;
  await expect(tryAgent({ ...tryout, task, agent: 'nobody' }, place, new AbortController().signal)).rejects.toThrow(
    /known agents/,
  );
  expect(await gateway.db.query.trials.findMany()).toHaveLength(count.length);
});
