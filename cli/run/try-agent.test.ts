import { existsSync } from 'node:fs';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { isolation } from '../../activities/sandbox/isolation.ts';
import type { AgentNetwork } from '../../core/networks.ts';
import { agentFile } from '../../core/run-config/agent-file.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import { readOutputs } from '../../store/queries/outputs.ts';
import { SECRET, useGateway } from '../../tests/support/harness/gateways.ts';
import { taskWith, temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { attackTask } from '../attack/attack-task.ts';
import { readTrialRecord, transcript } from '../show/trial-transcript.ts';
import { explainTrial } from './explain-trial.ts';
import { requireIsolation, tryAgent } from './try-agent.ts';
import { until } from '../../tests/support/harness/until.ts';

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

type Trying = { judge?: string; signal?: AbortSignal; toml?: string; network?: AgentNetwork };

/** Tries an agent, given as a shell command, on a task with this verifier. */
async function tried(
  command: string,
  { judge = GRADED, signal = new AbortController().signal, toml, network }: Trying = {},
) {
  await using folder = await temporaryHome();
  const task = await taskWith(folder.home, judge, toml === undefined ? {} : { 'task.toml': toml });
  const keep = join(folder.home, 'kept');
  const place = placeIn(folder.home);
  const agent = agentFile.parse({ command: ['sh', '-c', command], network });
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

test.skipIf((await isolation()).kind !== 'bubblewrap')(
  'what agent and tests asked of their egress proxies is kept with the attempt and shown, and a task narrows the agent’s list',
  async () => {
    const ask = 'curl -s http://pypi.org:81/; curl -s -o /dev/null http://other.test/ https://a.test/';
    const toml = '[agent]\nallowed_hosts = ["pypi.org"]\n[verifier]\nallowed_hosts = ["a.test"]\n';
    const judge = `curl -s http://other.test/; ${GRADED}`;
    const { trial } = await tried(`${ask}; echo right > answer.txt`, { toml, judge, network: ['pypi.org', 'a.test'] });
    expect(trial).toMatchObject({ outcome: 'scored', rewards: { reward: 1 } });
    const refused = 'refused: it is not in the list of this sandbox, 1 time\n';
    expect(trial.outputs.map(({ program, stdout }) => [program, stdout])).toEqual([
      ['agent', expect.stringMatching(/pypi\.org:81 was refused.*\nThis sandbox reaches pypi\.org\./)],
      ['agent network', `pypi.org:81   ${refused}other.test:80   ${refused}a.test:443   ${refused}`],
      ['verifier', expect.stringMatching(/other\.test:80 was refused.*\nThis sandbox reaches a\.test\..*\njudging\n/)],
      ['verifier network', `other.test:80   ${refused}`],
    ]);
    expect(transcript(trial)).toContain(`▌agent network, other hosts\npypi.org:81   ${refused}`);
  },
);

test.skipIf((await isolation()).kind !== 'bubblewrap')(
  'a task whose hosts the agent’s list lacks is refused before a trial is opened',
  async () => {
    const before = await gateway.db.query.trials.findMany();
    const toml = '[verifier]\nallowed_hosts = ["a.test"]\n';
    await expect(tried('true', { toml, network: 'gateway' })).rejects.toThrow(
      /lets its tests reach a\.test, and the run does not/,
    );
    expect(await gateway.db.query.trials.findMany()).toHaveLength(before.length);
  },
);

test.each([
  { sandbox: 'bubblewrap', task: 'folder' },
  { sandbox: 'container', verifier_sandbox: 'bubblewrap', task: 'folder' },
  { sandbox: 'container', task: 'train.jsonl#17' },
])(
  'where bubblewrap does not work, a trial with $sandbox, $verifier_sandbox and the task $task needs `--unsandboxed`',
  async ({ task, ...kinds }) => {
    const absent = async () => ({ kind: 'none', trouble: 'it is absent' }) as const;
    const wanted = { task, config: runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1, ...kinds }) };
    await expect(requireIsolation({ ...wanted, unsandboxed: false }, absent)).rejects.toThrow(/--unsandboxed/);
    await requireIsolation({ ...wanted, unsandboxed: true }, absent);
  },
);

test('a trial whose agent and verifier run in containers needs no bubblewrap', async () => {
  const containers = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1, sandbox: 'container' });
  await requireIsolation({ task: 'folder', config: containers, unsandboxed: false }, () =>
    Promise.reject(new Error('asked')),
  );
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
  const before = new Set((await gateway.db.query.trials.findMany()).map(({ id }) => id));
  const opened = async () => (await gateway.db.query.trials.findMany()).filter(({ id }) => !before.has(id));
  const interrupted = expect(tried('sleep 60', { signal: stop.signal })).rejects.toThrow('interrupted');
  await until(async () => (await opened()).length > 0);
  stop.abort(new Error('interrupted'));
  await interrupted;
  expect(await opened()).toMatchObject([{ outcome: 'cancelled', reason: 'interrupted' }]);
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

test('an agent whose file is beside the task is neither tried nor explained nor attacked', async () => {
  await using folder = await temporaryHome();
  const { home } = folder;
  const { folder: task } = await taskWith(home, 'true');
  const agent = join(home, 'agent.yaml');
  await writeFile(agent, 'command: [x]');
  const signal = new AbortController().signal;
  const refusal = `agents: agent can read all of ${home}, and ${join(task, 'tests')} is in it`;
  const place = placeIn(home);
  await expect(tryAgent({ task, agent, config, keep: null }, place, signal)).rejects.toThrow(refusal);
  await expect(explainTrial({ task, agent, config }, place, signal)).rejects.toThrow(refusal);
  await expect(attackTask({ task, agent, config, home, unsandboxed: true }, signal)).rejects.toThrow(refusal);
});
