import { join } from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { replicas } from '../../store/schema.ts';
import { SECRET, useGateway } from '../../tests/support/harness/gateways.ts';
import { taskWith, temporaryHome, writeFiles } from '../../tests/support/harness/sandbox-fixtures.ts';
import { tryBeforeStart } from './try-before-start.ts';

const gateway = useGateway();
const { signal } = new AbortController();
const REWARD = 'echo 0 > $LOGS_DIR/verifier/reward.txt';
const AGENT = 'import json\ndef work(task, model):\n    raise SystemExit("it was run")\n';

let said: string[] = [];

/** The deployment's engines belong to a run. */
beforeEach(async () => {
  said = [];
  await gateway.db.delete(replicas);
  await gateway.db.insert(replicas).values({ url: 'unix:/engine.sock', runId: 'first' });
});

/** Tries a run of this function agent and these tasks. */
async function tried({
  agent = AGENT,
  judge = REWARD,
  reward,
  engines = [],
  settings = {},
}: {
  agent?: string;
  judge?: string | null;
  reward?: string;
  engines?: string[];
  settings?: Record<string, unknown>;
}) {
  await using folder = await temporaryHome();
  const { home } = folder;
  await writeFiles(home, {
    'agent/solve.py': agent,
    'data/train.jsonl': '{"q": "first"}\n',
    'data/grade.py': reward ?? '',
  });
  const tasks = judge === null ? [] : [(await taskWith(home, judge)).folder];
  const rows = { rows: join(home, 'data/train.jsonl'), prompt: '{q}' };
  const config = runConfig.parse({
    model: 'm',
    iterations: 1,
    agents: [`${join(home, 'agent/solve.py')}:work`],
    tasks: reward === undefined ? tasks : [...tasks, rows],
    ...(reward === undefined ? {} : { reward: { function: `${join(home, 'data/grade.py')}:score` } }),
    engines,
    ...settings,
  });
  const {
    db,
    gateway: { url: gatewayUrl },
  } = gateway;
  const place = {
    db,
    gatewayUrl,
    secret: SECRET,
    home,
    unsandboxed: true,
    report: (line: string) => void said.push(line),
  };
  return await tryBeforeStart(config, place, signal);
}

test('while another run has the engines, verifiers and imports are tried and agents are not run', async () => {
  const reward = 'def score(row, transcript, result):\n    return len(transcript[-1]["content"])\n';
  expect(await tried({ reward })).toBe(
    'verifiers and imports work; agents were not run: the engines belong to run first until that ends',
  );
  expect(await gateway.db.query.trials.findMany()).toEqual([]);
});

test('the verifiers and imports of a run with engines of its own are tried too', async () => {
  expect(await tried({ engines: ['http://127.0.0.1:9'] })).toBe(
    'verifiers and imports work; agents were not run: the run has its own engines',
  );
});

test('without an engine, an agent that cannot be imported and a broken verifier are refused with the reason, and of a reward that fails on an empty reply is warned', async () => {
  await expect(tried({ agent: `import nosuchmodule\n${AGENT}` })).rejects.toThrow(
    /the agent "solve" failed when its file was imported: .*No module named 'nosuchmodule'.* --no-check/,
  );
  await expect(tried({ agent: 'def other(task):\n    pass\n' })).rejects.toThrow(/solve\.py has no function work/);
  await expect(tried({ judge: 'exit 3' })).rejects.toThrow(
    /the verifier of task failed when it judged the untouched task: .* --no-check/,
  );
  const reward = 'def score(row, transcript, result):\n    return row["answer"]\n';
  await tried({ judge: null, reward });
  expect(said.at(-1)).toMatch(
    /^WARNING: the reward of .* failed when it judged an empty reply: .*KeyError.*\nIf it fails for real replies too, their trials end as verifier_error/s,
  );
});

test('a reward function that leaves an empty reply out is no reason against a run', async () => {
  const reward = 'def score(completions, **columns):\n    return [None]\n';
  expect(await tried({ judge: null, reward })).toMatch(/^verifiers and imports work/);
});

/** The engines are free. The agent asks them once. */
const ASKS = `
import urllib.request
from json import dumps
def work(task, model):
    body = dumps({"model": "policy", "messages": [{"role": "user", "content": "hello"}]}).encode()
    headers = {"authorization": f"Bearer {model.api_key}", "content-type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{model.base_url}/chat/completions", body, headers)).read()
`;

test('the check says how long its trial took and how fast the engines answered it', async () => {
  await gateway.db.update(replicas).set({ url: gateway.engine.url, runId: null });
  expect(await tried({ agent: ASKS })).toMatch(
    /^agents and verifiers work \(1 trial tried in \d+ s, [\d.]+ tokens\/s\)$/,
  );
});

test.each([
  [
    'got no reply to any call',
    `${ASKS.replace('    urllib', '    try: urllib')}\n    except Exception: pass\n`,
    /^the agent "solve" got no reply: engine_400: .*--tool-call-parser NAME.*--no-check/,
  ],
  [
    'made no call',
    'def work(task, model):\n    pass\n',
    /^the agent "solve" made no call: it must ask the base URL .*--no-check/,
  ],
])('an agent that ends well although it %s is refused before the run, with the reason', async (_, agent, why) => {
  await gateway.db.update(replicas).set({ url: gateway.engine.url, runId: null });
  gateway.engine.fault = 'no_tool_parser';
  await expect(tried({ agent })).rejects.toThrow(why);
});

test('a first task whose prompt alone is too long is a warning and no reason against a run', async () => {
  await gateway.db.update(replicas).set({ url: gateway.engine.url, runId: null });
  gateway.engine.fault = 'context_too_long';
  const agent = `${ASKS.replace('    urllib', '    try: urllib')}\n    except Exception: pass\n`;
  expect(await tried({ agent })).toMatch(/^agents and verifiers work/);
  expect(said.at(-1)).toMatch(/^WARNING: the agent "solve" got no reply: context_length_exceeded/);
});

test('engines that answer no call of the check in its time are the reason that is said, and not the agent', async () => {
  await gateway.db.update(replicas).set({ url: gateway.engine.url, runId: null });
  gateway.engine.fault = 'hang';
  await expect(tried({ agent: ASKS, settings: { deadlines: { trial: 5 } } })).rejects.toThrow(
    /^the engines gave the agent "solve" no reply in \d+ s, .*--no-check/,
  );
});
