import Anthropic from '@anthropic-ai/sdk';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { and, asc, eq, notInArray } from 'drizzle-orm';
import OpenAI from 'openai';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { connectionsOf } from '../../cli/config/connections.ts';
import type { RunRecord } from '../../cli/show/run-record.ts';
import { groupOf } from '../../cli/supervisor/processes.ts';
import { readState } from '../../cli/supervisor/state.ts';
import { attempts, calls, trials } from '../../store/schema.ts';
import { listeningSockets, processesNaming, socketsOf } from '../support/harness/deployment-traces.ts';
import { pauseEngine, whileEnginePaused } from '../support/harness/engine-pause.ts';
import { shallowDeployment, type ShallowDeployment } from '../support/harness/shallow-deployment.ts';
import { trialOverHttp } from '../support/harness/trial-over-http.ts';
import { until } from '../support/harness/until.ts';
import { firstReplyOf, recordWhen, statusOf, temporalWorkflow } from '../support/harness/watched-runs.ts';
import { auditRun } from '../support/oracles/audit-run.ts';
import { unrecorded, Witness } from '../support/oracles/witness.ts';
import { chanceTasks } from '../support/scenarios/chance-tasks.ts';
import { exactTrialsIn } from '../support/scenarios/exact-trial.ts';

/** The deployment of all tests of this file, which follow each other. Its model has 4 layers. */
let place: ShallowDeployment;
let chance: string;

beforeAll(async () => {
  // Agents that start together also end together in the engine's batch, so these start one after the other.
  place = await shallowDeployment({ TRIALGATE_SANDBOXES_PER_SECOND: '4' });
  chance = await chanceTasks(join(place.folder, 'tasks'));
});
afterAll(async () => {
  await witness?.stop();
  await place?.remove();
});

/** Writes a run file with two short iterations. */
async function runFile(run: string, changes: object): Promise<string> {
  const config = {
    model: place.model,
    tasks: [chance],
    iterations: 2,
    groups_per_iteration: 2,
    group_size: 3,
    max_response_length: 24,
    keep_checkpoints_at_end: 'all',
    evaluation: { before: false, after: false },
    ...changes,
  };
  const file = join(place.folder, `${run}.json`);
  await writeFile(file, JSON.stringify(config));
  return file;
}

/** Returns the attempts of a run that finished their trial, with what they earned. */
const finishedIn = (run: string) =>
  place.db
    .select({
      trial: trials.id,
      attempt: attempts.attempt,
      outcome: attempts.outcome,
      endedAt: attempts.endedAt,
      rewards: trials.rewards,
    })
    .from(attempts)
    .innerJoin(trials, eq(trials.id, attempts.trialId))
    .where(and(eq(trials.runId, run), notInArray(attempts.outcome, ['infra_error', 'cancelled'])))
    .orderBy(asc(trials.id));

/** Asks the gateway from before the first run to the end of the killed one. */
let witness: Witness;
/** The record and the finished attempts of the killed run at its kill. */
let atKill: { record: RunRecord; finished: Awaited<ReturnType<typeof finishedIn>> };

test('a run is trained and published, and while its next iteration samples, its record says what is finished and what is open', async ({
  signal,
}) => {
  const { deployment, db, engineSocket } = place;
  witness = new Witness(deployment, { everyMs: 500 });
  const file = await runFile('killed', { agents: ['oneshot'], group_size: 4 });
  await deployment.trialgate('train', file, '--run', 'killed', '--detach');
  await firstReplyOf(db, 'killed', 1, signal);
  // The engine answers no other agent before the kill in the next test, so some trials have finished then and others are under way.
  await pauseEngine(engineSocket);
  const record = await recordWhen(db, 'killed', ({ iterations }) => (iterations[1]?.trials.scored ?? 0) > 0, signal);
  expect(record.iterations).toMatchObject([
    { status: 'done', trained_version: 1, trials: { scored: 8 }, replicas: [{ weight_version: 'killed@1' }] },
    { status: 'open', trained_version: null, trials: { open: expect.any(Number) } },
  ]);
  atKill = { record, finished: await finishedIn('killed') };
});

test('after a SIGKILL of every process in the middle of an iteration and `up`, the run completes, and no finished work is lost or repeated', async ({
  signal,
}) => {
  const { deployment, db } = place;
  deployment.killEverything();
  await deployment.up();
  const record = await recordWhen(db, 'killed', ({ status }) => status !== 'running', signal);
  expect(record).toMatchObject({
    status: 'completed',
    reason: null,
    iterations: [
      { take: 1, status: 'done', trained_version: 1, trials: { scored: 8 } },
      {
        take: 1,
        status: 'done',
        policy_version: 1,
        trained_version: 2,
        trials: { scored: 8 },
        replicas: [{ weight_version: 'killed@2' }],
      },
    ],
  });
  const [first] = atKill.record.iterations;
  expect(record.iterations[0]).toMatchObject({ batch: first?.batch, checkpoint: first?.checkpoint });
  expect(await finishedIn('killed')).toEqual(expect.arrayContaining(atKill.finished));
  expect(await auditRun(db, 'killed', 2)).toEqual([]);
  const seen = await witness.stop();
  expect(seen.length).toBeGreaterThan(5);
  expect(await unrecorded(db, seen)).toEqual([]);
});

/** An agent that asks twice in one conversation and returns what the model said. */
const AGENT = `
import json
import urllib.request


def run(task, model):
    messages = list(task.messages)
    said = []
    for _ in range(2):
        request = urllib.request.Request(
            model.base_url + "/chat/completions",
            json.dumps({"model": model.model, "messages": messages}).encode(),
            {"authorization": "Bearer " + model.api_key, "content-type": "application/json"},
        )
        with urllib.request.urlopen(request) as response:
            message = json.load(response)["choices"][0]["message"]
        said.append(message["content"])
        messages += [message, {"role": "user", "content": "Go on."}]
    return {"said": said}
`;

test('a run whose agent is a Python function, started and queried by Temporal’s own CLI, is trained and published', async ({
  signal,
}) => {
  const { deployment, db, folder } = place;
  await mkdir(join(folder, 'agent'));
  await writeFile(join(folder, 'agent/agent.py'), AGENT);
  const file = await runFile('by-function', { agents: [join(folder, 'agent/agent.py:run')], group_size: 2 });
  const named = ['--workflow-id', 'by-function'];
  await temporalWorkflow(
    deployment,
    ...['start', '--type', 'trainRun', '--task-queue', 'trialgate', ...named],
    ...['--input-file', file],
  );
  expect(await temporalWorkflow(deployment, 'query', ...named, '--type', 'status')).toContain('"run":"by-function"');
  const record = await recordWhen(db, 'by-function', ({ status }) => status !== 'running', signal);
  expect(record).toMatchObject({
    status: 'completed',
    iterations: [1, 2].map((version) => ({
      status: 'done',
      policy_version: version - 1,
      trained_version: version,
      skipped: null,
      trials: { scored: 4 },
      // Each trial is one conversation of two calls.
      calls: { completed: 8, clean: 4, drifted: 0, branched: 0 },
      batch: { trials: 4, samples: 4 },
      replicas: [{ weight_version: `by-function@${version}` }],
    })),
  });
  for (const { metrics } of record.iterations) expect(metrics['actor/grad_norm']).toBeGreaterThan(0);
  expect(await auditRun(db, 'by-function', 2)).toEqual([]);
});

const RUN = 'operated';

test('a paused run starts no train step, and after `resume` it trains on the trials that ended meanwhile', async ({
  signal,
}) => {
  const { deployment, db, engineSocket } = place;
  const file = await runFile(RUN, { agents: ['oneshot'], group_size: 4 });
  await deployment.trialgate('train', file, '--run', RUN, '--detach');
  await firstReplyOf(db, RUN, 0, signal);
  await whileEnginePaused(engineSocket, () =>
    temporalWorkflow(deployment, 'update', 'execute', '--workflow-id', RUN, '--name', 'pause'),
  );
  const paused = await until(async () => {
    signal.throwIfAborted();
    const report = await statusOf(deployment, RUN);
    return report?.phase === 'paused' && report.groups_ended === 2 ? report : null;
  }, 600_000);
  expect(paused).toMatchObject({ iteration: 0, take: 1, policy_version: 0, waits_for: 'a person: resume' });
  const finished = await finishedIn(RUN);
  expect(finished).toHaveLength(8);
  expect(await recordWhen(db, RUN, () => true, signal)).toMatchObject({
    status: 'running',
    iterations: [{ status: 'open', trials: { scored: 8 }, trained_version: null }],
  });
  await deployment.trialgate('resume', RUN, '--detach');
  const record = await recordWhen(db, RUN, ({ iterations }) => iterations[0]?.status === 'done', signal);
  expect(record.iterations[0]).toMatchObject({ take: 1, trained_version: 1, batch: { trials: 8 } });
  expect(await finishedIn(RUN)).toEqual(expect.arrayContaining(finished));
});

test('a cancelled run keeps its finished trials, and after `resume` it goes on in the same take', async ({
  signal,
}) => {
  const { deployment, db, engineSocket } = place;
  await firstReplyOf(db, RUN, 1, signal);
  const finished = await whileEnginePaused(engineSocket, async () => {
    await recordWhen(db, RUN, ({ iterations }) => (iterations[1]?.trials.scored ?? 0) > 0, signal);
    await deployment.trialgate('cancel', RUN);
    const record = await recordWhen(db, RUN, ({ status }) => status !== 'running', signal);
    expect(record).toMatchObject({
      status: 'cancelled',
      iterations: [
        { status: 'done', trained_version: 1 },
        { status: 'open', trained_version: null, trials: { cancelled: expect.any(Number) } },
      ],
    });
    return finishedIn(RUN);
  });
  await deployment.trialgate('resume', RUN);
  const record = await recordWhen(db, RUN, ({ status }) => status !== 'running', signal);
  expect(record).toMatchObject({
    status: 'completed',
    reason: null,
    iterations: [
      { iteration: 0, take: 1, status: 'done', trained_version: 1 },
      { iteration: 1, take: 1, status: 'done', policy_version: 1, trained_version: 2, trials: { scored: 8 } },
    ],
  });
  expect(record.iterations).toHaveLength(2);
  expect(await finishedIn(RUN)).toEqual(expect.arrayContaining(finished));
  expect(await auditRun(db, RUN, 2)).toEqual([]);
});

test('`redo` trains the last iteration anew in a next take: the old rows stay as superseded, and no version number is used twice', async ({
  signal,
}) => {
  const { deployment, db } = place;
  const old = await finishedIn(RUN);
  await deployment.trialgate('redo', RUN);
  const record = await recordWhen(db, RUN, ({ status }) => status !== 'running', signal);
  expect(record.status).toBe('completed');
  expect(
    record.iterations.map((row) => [row.iteration, row.take, row.status, row.policy_version, row.trained_version]),
  ).toEqual([
    [0, 1, 'done', 0, 1],
    [1, 1, 'superseded', 1, 2],
    [1, 2, 'done', 1, 3],
  ]);
  expect(record.iterations[1]?.batch?.sha256).not.toBe(record.iterations[2]?.batch?.sha256);
  expect(record.iterations[2]).toMatchObject({ trials: { scored: 8 }, replicas: [{ weight_version: `${RUN}@3` }] });
  const all = await finishedIn(RUN);
  expect(all).toHaveLength(old.length + 8);
  expect(all).toEqual(expect.arrayContaining(old));
});

type Key = { key: string; baseUrl: string };
type Said = { role: 'user' | 'assistant'; content: string };

/** Each client asks with the whole conversation and returns the text of the reply. */
const CLIENTS: [name: string, protocol: string, ask: (at: Key, said: Said[], stream: boolean) => Promise<string>][] = [
  [
    'OpenAI’s client',
    'chat_completions',
    async ({ key, baseUrl }, messages, stream) => {
      const { completions } = new OpenAI({ apiKey: key, baseURL: baseUrl, maxRetries: 0 }).chat;
      const asked = { model: 'policy', messages, max_tokens: 16 };
      const { choices } = stream
        ? await completions.stream(asked).finalChatCompletion()
        : await completions.create(asked);
      return choices[0]?.message.content ?? '';
    },
  ],
  [
    'Anthropic’s client',
    'messages',
    async ({ key, baseUrl }, messages, stream) => {
      const client = new Anthropic({ apiKey: key, baseURL: baseUrl.replace(/\/v1$/, ''), maxRetries: 0 }).messages;
      const asked = { model: 'policy', max_tokens: 16, messages };
      const { content } = stream ? await client.stream(asked).finalMessage() : await client.create(asked);
      return content.map((block) => (block.type === 'text' ? block.text : '')).join('');
    },
  ],
  [
    'OpenAI’s client for responses',
    'responses',
    async ({ key, baseUrl }, input, stream) => {
      const { responses } = new OpenAI({ apiKey: key, baseURL: baseUrl, maxRetries: 0 });
      const asked = { model: 'policy', max_output_tokens: 16, input };
      const reply: OpenAI.Responses.Response = stream
        ? await responses.stream(asked).finalResponse()
        : await responses.create(asked);
      return reply.output_text;
    },
  ],
];

const session = z.object({ turns: z.array(z.object({ completion_text: z.string() })) });

test.for(CLIENTS)(
  '%s reads plain and streamed replies, and all are recorded as trainable',
  async ([, protocol, ask]) => {
    const { gatewayUrl, adminKey } = connectionsOf(place.deployment.config);
    const trial = await trialOverHttp({ url: gatewayUrl, adminKey }, `by-${protocol}`);
    const said: Said[] = [];
    for (const stream of [false, true]) {
      said.push({ role: 'user', content: 'Say something.' });
      said.push({ role: 'assistant', content: await ask(trial, said, stream) });
    }
    const seen = said.flatMap(({ role, content }) => (role === 'assistant' ? [content] : []));
    expect(session.parse(await trial.session()).turns.map((turn) => turn.completion_text)).toEqual(seen);
    const recorded = await place.db
      .select()
      .from(calls)
      .where(eq(calls.trialId, `by-${protocol}`))
      .orderBy(asc(calls.seq));
    expect(recorded).toMatchObject(
      [false, true].map((stream) => ({
        status: 'completed',
        protocol,
        stream,
        continuation: stream ? 'clean' : null,
        untrainable: null,
      })),
    );
    for (const { completionTokenIds, logprobs } of recorded) {
      expect(completionTokenIds?.length).toBeGreaterThan(0);
      expect(logprobs).toHaveLength(completionTokenIds?.length ?? 0);
    }
  },
);

test('conversations of several turns do not drift, and their records equal what the agents saw', async ({ signal }) => {
  expect(await exactTrialsIn(connectionsOf(place.deployment.config), { trials: 4, steps: 8, signal })).toEqual([]);
});

test('`down` leaves no process and no listening socket of the deployment', async () => {
  const { deployment } = place;
  const state = readState(deployment.home);
  const leaders = [state?.supervisor ?? [], state?.components.flatMap(({ process }) => process ?? []) ?? []].flat();
  const groups = leaders.flatMap(groupOf);
  const open = socketsOf([...groups, ...processesNaming(deployment.home)], listeningSockets());
  expect(leaders.length).toBeGreaterThan(5);
  expect([...open.values()]).toEqual(
    expect.arrayContaining([...Object.values(state?.ports ?? {}).map(String), place.engineSocket]),
  );
  await deployment.trialgate('down');
  expect(leaders.flatMap(groupOf)).toEqual([]);
  expect(processesNaming(deployment.home)).toEqual([]);
  const after = listeningSockets();
  expect([...open].filter(([inode]) => after.has(inode))).toEqual([]);
});
