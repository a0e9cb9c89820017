import { createServer, type IncomingMessage } from 'node:http';
import { readFile } from 'node:fs/promises';
import { once } from 'node:events';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { describe, expect, test } from 'vitest';
import { agentsFolder } from '../activities/sandbox/agents-folder.ts';
import { createSandbox } from '../activities/sandbox/create-sandbox.ts';
import { listAgents, loadAgent } from '../activities/sandbox/load-agent.ts';
import { runAgentProcess, type AgentResult } from '../activities/sandbox/run-agent-process.ts';
import { testedIsolations, temporaryHome, writeFiles } from '../tests/support/harness/sandbox-fixtures.ts';
import type { RowTask, Task } from '../core/task.ts';
import { loadTask } from '../activities/tasks/load-task.ts';

type Reply = { status?: number; text: string };
type ModelRequest = { messages: { role: string; content: string }[]; headers: IncomingMessage['headers']; url: string };
type Run = AgentResult & { asked: ModelRequest[]; solution: string | null; answer: string | null; made: string | null };

const task = await loadTask('tasks/train/add');
const block = (code: string): string => `Sure!\n\`\`\`python\n${code}\n\`\`\`\nBye.`;
const right = block('def add(a, b):\n    return a + b');

const FUNCTION = `
import json, urllib.request

async def run(task, model):
    body = json.dumps({"model": model.model, "messages": task.messages}).encode()
    headers = {"authorization": "Bearer " + model.api_key, "content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(model.base_url + "/chat/completions", body, headers)) as response:
        reply = json.load(response)["choices"][0]["message"]["content"]
    return {"reply": reply, "row": task.row, "instruction": task.instruction}
`;
import { openBackend } from '../activities/sandbox/backends.ts';
import { bubblewrapBackend } from '../activities/sandbox/bubblewrap-backend.ts';

const backend = await openBackend();

/** The files in docs/agents.md, by their path in the folder `agents/`. */
const document = await readFile(new URL('../docs/agents.md', import.meta.url), 'utf8');
const EXAMPLES = Object.fromEntries(
  [...document.matchAll(/^`agents\/([\w./-]+)`:\n\n```\w+\n([^]*?)```$/gm)].map(([, path = '', text = '']) => [
    path,
    text,
  ]),
);

test('every agent file that docs/agents.md shows is valid', async () => {
  await using folder = await temporaryHome();
  await writeFiles(folder.home, EXAMPLES);
  const names = Object.keys(EXAMPLES).flatMap((path) =>
    path.endsWith('.yaml') ? [path.slice(0, -'.yaml'.length)] : [],
  );
  expect(names).toEqual(['hello', 'looker/agent']);
  for (const name of names)
    expect(await loadAgent(join(folder.home, `${name}.yaml`))).toMatchObject({ name: name.split('/')[0] });
});

test('every bundled agent is in the table of docs/agents.md, and its file is valid', async () => {
  const names = await listAgents();
  expect(names).toContain('chat');
  for (const name of names) {
    expect(await loadAgent(name)).toMatchObject({ name });
    expect(document).toContain(`\`${name}\``);
  }
});

describe.each(await testedIsolations())('$kind', (isolation) => {
  const run = (name: string, ...replies: Reply[]): Promise<Run> =>
    runOn(task, join(agentsFolder, `${name}.yaml`), ...replies);

  /** Runs an agent against a gateway that answers its requests with one reply after the other, and from then on with the last one. */
  async function runOn(of: Task, agent: string, ...replies: Reply[]): Promise<Run> {
    await using folder = await temporaryHome();
    const asked: ModelRequest[] = [];
    const gateway = createServer(async (request, response) => {
      const { messages } = (await json(request)) as Pick<ModelRequest, 'messages'>;
      asked.push({ messages, headers: request.headers, url: request.url ?? '' });
      const { status = 200, text } = replies[Math.min(asked.length, replies.length) - 1] ?? { text: '' };
      const body =
        status === 200
          ? { choices: [{ message: { content: text }, finish_reason: 'length' }] }
          : { error: { message: text } };
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    }).listen(0, '127.0.0.1');
    await once(gateway, 'listening');
    const address = gateway.address();
    const port = address !== null && typeof address === 'object' ? address.port : 0;
    try {
      const sandbox = await createSandbox({ backend, home: folder.home, trialId: 't', attempt: 1, task: of });
      const result = await runAgentProcess({
        agent: await loadAgent(agent),
        task: of,
        sandbox,
        backend: bubblewrapBackend(isolation),
        trialId: 't',
        gateway: `http://127.0.0.1:${port}`,
        network: 'gateway',
        apiKey: 'the-key',
        model: 'policy',
        signal: new AbortController().signal,
      });
      const left = async (name: string) => readFile(join(sandbox.work, name), 'utf8').catch(() => null);
      const [solution, answer, made] = [await left('solution.py'), await left('answer.txt'), await left('result.json')];
      return { ...result, asked, solution, answer, made };
    } finally {
      gateway.close();
    }
  }

  test('the smallest agent that docs/agents.md shows asks the model and leaves the reply in its work folder', async () => {
    await using folder = await temporaryHome();
    await writeFiles(folder.home, EXAMPLES);
    const { ending, reason, asked, solution } = await runOn(task, join(folder.home, 'hello.yaml'), {
      text: 'print("done")',
    });
    expect([ending, reason, solution]).toEqual(['done', null, 'print("done")']);
    expect(asked).toMatchObject([
      {
        url: '/t/v1/chat/completions',
        headers: { authorization: 'Bearer the-key' },
        messages: [{ role: 'user', content: task.instruction }],
      },
    ]);
  });

  const MESSAGES: RowTask['messages'] = [
    { role: 'system', content: 'Be short.' },
    { role: 'user', content: 'Why?' },
  ];
  const row: RowTask = {
    ...task,
    kind: 'row',
    prompt: MESSAGES,
    messages: MESSAGES,
    row: { hint: 'none', answer: 42 },
    columns: ['hint'],
    rewards: {},
  };

  test('the agent chat asks once with the messages of a row’s prompt and leaves the reply in answer.txt', async () => {
    const { ending, asked, answer } = await runOn(row, join(agentsFolder, 'chat.yaml'), { text: 'Because.' });
    expect([ending, answer]).toEqual(['done', 'Because.']);
    expect(asked.map(({ messages }) => messages)).toEqual([row.messages]);
    expect((await runOn(task, join(agentsFolder, 'chat.yaml'), { text: '' })).asked[0]?.messages).toEqual([
      { role: 'user', content: task.instruction },
    ]);
  });

  test('a Python function is an agent: it gets the task without its hidden columns, and its result is kept', async () => {
    await using folder = await temporaryHome();
    await writeFiles(folder.home, { 'own/my.agent.py': FUNCTION });
    const { ending, reason, asked, made } = await runOn(row, `${join(folder.home, 'own/my.agent.py')}:run`, {
      text: 'Because.',
    });
    expect([ending, reason]).toEqual(['done', null]);
    expect(asked.map(({ messages }) => messages)).toEqual([row.messages]);
    expect(JSON.parse(made ?? '')).toEqual({ reply: 'Because.', row: { hint: 'none' }, instruction: task.instruction });
  });

  test.each([
    ['raises', 'def run(task): raise ValueError("too hard")', 'ValueError: too hard'],
    ['does not exist', 'def other(task): pass', 'my.py has no function run'],
    [
      'returns what is not JSON',
      'def run(task): return {1, 2}',
      'TypeError: Object of type set is not JSON serializable',
    ],
  ])('a function that %s ends its attempt as agent_error, which says so', async (_, text, message) => {
    await using folder = await temporaryHome();
    await writeFiles(folder.home, { 'own/my.py': text });
    const { ending, reason } = await runOn(task, `${join(folder.home, 'own/my.py')}:run`, { text: '' });
    expect([ending, reason]).toEqual(['agent_error', expect.stringContaining(message)]);
  });

  test('the agent oneshot asks the model once, with its trial’s key, and writes only the code block of the reply', async () => {
    const { ending, asked, solution } = await run('oneshot', { text: right });
    expect(ending).toBe('done');
    expect(solution).toBe('def add(a, b):\n    return a + b\n');
    expect(asked).toHaveLength(1);
    expect(asked[0]).toMatchObject({ url: '/t/v1/chat/completions', headers: { authorization: 'Bearer the-key' } });
    expect(asked[0]?.messages).toEqual([{ role: 'user', content: task.instruction.trim() }]);
  });

  test.each(['```python\ndef add(a, b):', 'def add(a, b): return a + b', '```json\n{}\n```'])(
    'the agent oneshot writes no solution for the reply %j',
    async (text) => {
      expect(await run('oneshot', { text })).toMatchObject({ ending: 'done', solution: null });
    },
  );

  test('the agent `repair` asks again when its code fails the visible test, and shows the model the failure', async () => {
    const wrong = block('def add(a, b):\n    return a - b');
    const { ending, asked, solution } = await run('repair', { text: wrong }, { text: 'I see.' }, { text: right });
    expect(ending).toBe('done');
    expect(solution).toContain('a + b');
    expect(asked.map(({ messages }) => messages.length)).toEqual([1, 3, 5]);
    const conversation = asked[2]?.messages;
    expect(conversation?.[1]).toEqual({ role: 'assistant', content: wrong });
    expect(conversation?.[2]?.content).toContain('add(2, 3) should give 5, but gave -1');
    expect(conversation?.[4]?.content).toContain('no complete ```python block');
  });

  test('the agent repair asks the model at most three times, and stops when its code passes the visible test', async () => {
    expect((await run('repair', { text: block('def add(a, b): boom') })).asked).toHaveLength(3);
    expect((await run('repair', { text: right })).asked).toHaveLength(1);
  });

  test('the agent oneshot sends a request again that the gateway answered with 503', async () => {
    const { ending, asked } = await run('oneshot', { status: 503, text: 'engine' }, { text: right });
    expect(ending).toBe('done');
    expect(asked.map(({ headers }) => headers['x-stainless-retry-count'])).toEqual(['0', '1']);
  });

  test('when the gateway keeps failing, the agent oneshot ends with exit code 1 and the gateway’s message', async () => {
    expect(await run('oneshot', { status: 500, text: 'engine is gone' })).toMatchObject({
      ending: 'agent_error',
      process: { exitCode: 1 },
      reason: expect.stringContaining('engine is gone'),
    });
  });

  test('the agent oneshot sends a request again that the gateway answered with `engine_paused`, while engines load weights', async () => {
    const { ending, asked } = await run('oneshot', { status: 429, text: 'engine_paused' }, { text: block('pass') });
    expect([ending, asked.length]).toEqual(['done', 2]);
  });

  test('the agent oneshot does not send a request again that the gateway refused, and ends as agent_error', async () => {
    const { ending, asked, reason } = await run('oneshot', { status: 401, text: 'wrong key' });
    expect([ending, asked.length]).toEqual(['agent_error', 1]);
    expect(reason).toContain('wrong key');
  });

  test('the agent repair ends well, and keeps its solution, when its trial’s budget or the model’s context is used up', async () => {
    const first = { text: block('def add(a, b): return 1') };
    const refusals = [
      { status: 429, text: 'budget_exhausted' },
      { status: 400, text: "This model's maximum context length is 10 tokens" },
    ];
    for (const refusal of refusals) {
      expect(await run('repair', first, refusal)).toMatchObject({
        ending: 'done',
        solution: 'def add(a, b): return 1\n',
      });
    }
  });
});
