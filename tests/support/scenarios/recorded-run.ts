import { eq, inArray } from 'drizzle-orm';
import { openAttempt } from '../../../store/queries/open-attempt.ts';
import { recordOutput } from '../../../store/queries/outputs.ts';
import { recordCalls } from '../../../store/queries/record-calls.ts';
import { sealAttempt } from '../../../store/queries/seal-attempt.ts';
import type { Database } from '../../../store/database.ts';
import {
  attempts,
  batches,
  groups,
  iterations,
  policyVersions,
  quarantinedTasks,
  runs,
  trials,
} from '../../../store/schema.ts';
import { runConfig } from '../../../core/run-config/run-config.ts';
import { contentOf } from '../../../store/calls/content.ts';
import { itemKey } from '../../../store/calls/outline.ts';
import type { Base } from '../../../store/calls/shorten.ts';
import { callRecord } from './call-record.ts';

type Shape = { iterations: number; groups: number; size: number };

/** Records runs older than all others, `old-0` and so on, without anything of them. Returns what removes them. */
export async function recordOldRuns(db: Database, count: number): Promise<() => Promise<void>> {
  const all = Array.from({ length: count }, (_, index) => ({ id: `old-${index}`, config: {}, createdAt: new Date(0) }));
  await db.insert(runs).values(all);
  const ids = all.map(({ id }) => id);
  return async () => void (await db.delete(runs).where(inArray(runs.id, ids)));
}

/** Changes the row of a run, as its workflow or a command does. */
export async function changeRun(
  db: Database,
  runId: string,
  change: Partial<Pick<typeof runs.$inferInsert, 'status' | 'reason' | 'endedAt' | 'pausedUntil'>>,
): Promise<void> {
  await db.update(runs).set(change).where(eq(runs.id, runId));
}

/** Opens trials of a group of its own, of a run's evaluation, whose sandboxes this host has. */
export async function recordUnderWay(db: Database, runId: string, host: string, trialIds: string[]): Promise<void> {
  const groupId = `${runId}/eval@0/90`;
  await db.insert(groups).values({
    id: groupId,
    runId,
    kind: 'eval',
    task: '/tasks/task-0',
    agent: 'oneshot',
    size: trialIds.length,
    policyVersion: 0,
    ordinal: 90,
  });
  for (const [trialIndex, trialId] of trialIds.entries())
    await openAttempt(db, { trialId, runId, groupId, trialIndex, host });
}

/** The reward of a trial: the run learns, and groups differ. */
const rewardOf = (iteration: number, group: number, index: number): number =>
  (index * 7 + group * 3) % 10 < 2 + iteration / 3 + (group % 3) ? 1 : (index % 4) / 8;

/**
 * Fills the record with a run of finished iterations, an evaluation before and after them, and each kind of lost work in its last
 * iteration. The trials have no calls; `recordConversation` gives one some.
 */
export async function recordRun(db: Database, runId: string, { iterations: steps, groups: many, size }: Shape) {
  const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: steps });
  const start = Date.now() - steps * 90_000;
  const at = (iteration: number, seconds: number): Date => new Date(start + iteration * 90_000 + seconds * 1_000);
  await db.insert(runs).values({ id: runId, config, createdAt: new Date(start) });
  await addGroups(db, runId, { kind: 'eval', prefix: 'eval@0', version: 0, many: 4, size: 4 }, (g, i) =>
    (g + i) % 3 === 0 ? 1 : 0.25,
  );
  for (let iteration = 0; iteration < steps; iteration++) {
    const key = { runId, iteration, take: 1 };
    await db.insert(iterations).values({
      ...key,
      policyVersion: iteration,
      trainedVersion: iteration + 1,
      status: 'done',
      openedAt: at(iteration, 0),
      endedAt: at(iteration, 80),
      seconds: { rollout: 40 - iteration, batch: 0.2, train: 30 + (iteration % 3), publish: 4.5 },
    });
    await addGroups(
      db,
      runId,
      { kind: 'train', prefix: `${iteration}.1`, version: iteration, many, size, iteration, at: at(iteration, 1) },
      (g, i) => rewardOf(iteration, g, i),
    );
    const rewards = Array.from({ length: many * size }, (_, i) => rewardOf(iteration, Math.floor(i / size), i % size));
    const mean = rewards.reduce((sum, each) => sum + each, 0) / rewards.length;
    await db.insert(batches).values({
      ...key,
      sha256: `batch ${iteration}`,
      path: '/b',
      samples: many * size,
      trials: many * size,
      metrics: { used_reward: mean, used_tokens: 200 + 30 * Math.sin(iteration), staleness_mean: 0, staleness_max: 0 },
      createdAt: at(iteration, 41),
    });
    await db.insert(policyVersions).values({
      ...key,
      version: iteration + 1,
      stepKey: `${runId} ${iteration}`,
      checkpoint: '/c',
      checkpointSha256: 'c',
      canary: { token_ids: [], logprobs: [] },
      createdAt: at(iteration, 74),
      metrics: {
        'actor/entropy': 1.2 - iteration / 20,
        'actor/ppo_kl': 0.0004 * (1 + (iteration % 4)),
        'actor/lr': 1e-6,
        'actor/grad_norm': 0.8 + Math.cos(iteration) / 5,
        'rollout_corr/kl': 2e-4 + 1e-5 * iteration,
        'perf/mfu/actor': 0.31,
        'train/reward_mean': mean,
      },
    });
  }
  await addGroups(db, runId, { kind: 'eval', prefix: `eval@${steps}`, version: steps, many: 4, size: 4 }, (g, i) =>
    (g + i) % 3 < 2 ? 1 : 0.25,
  );
}

type GroupsOf = {
  kind: 'train' | 'eval';
  prefix: string;
  version: number;
  many: number;
  size: number;
  iteration?: number;
  at?: Date;
};

async function addGroups(
  db: Database,
  runId: string,
  { kind, prefix, version, many, size, iteration, at = new Date() }: GroupsOf,
  reward: (group: number, index: number) => number,
): Promise<void> {
  const end = new Date(at.getTime() + 31_000);
  const sealedAt = (index: number): Date => new Date(at.getTime() + 5_000 + 1_300 * index);
  const trialIdOf = (ordinal: number, index: number): string =>
    `${runId}-${prefix.replace('@', '_')}-${ordinal}-${index}`;
  const place = iteration === undefined ? {} : { iteration, take: 1 };
  const made = Array.from({ length: many }, (_, ordinal) => ({ id: `${runId}/${prefix}/${ordinal}`, ordinal }));
  await db.insert(groups).values(
    made.map(({ id, ordinal }) => ({
      id,
      runId,
      kind,
      ...place,
      ordinal,
      task: `/tasks/task-${ordinal}`,
      agent: 'oneshot',
      size,
      policyVersion: version,
      openedAt: at,
      endedAt: end,
    })),
  );
  await db.insert(trials).values(
    made.flatMap(({ id, ordinal }) =>
      Array.from({ length: size }, (_, trialIndex) => ({
        id: trialIdOf(ordinal, trialIndex),
        runId,
        groupId: id,
        trialIndex,
        task: `/tasks/task-${ordinal}`,
        agent: 'oneshot',
        status: 'completed' as const,
        outcome: 'scored' as const,
        rewards: { reward: reward(ordinal, trialIndex) },
        policyVersion: version,
        usedCalls: 1 + (trialIndex % 3),
        usedTokens: 120 + 17 * trialIndex,
        attemptOpenedAt: at,
        sealedAt: sealedAt(trialIndex),
      })),
    ),
  );
  for (const { ordinal } of made)
    await addAttempts(
      db,
      Array.from({ length: size }, (_, i) => trialIdOf(ordinal, i)),
      at,
      sealedAt,
    );
}

/** Adds the attempts of trials: a wait for a slot, the opening, the agent with waits for its engine, the verification. */
async function addAttempts(db: Database, trialIds: readonly string[], at: Date, sealedAt: (i: number) => Date) {
  await db.insert(attempts).values(
    trialIds.map((trialId, i) => ({
      trialId,
      attempt: 1,
      outcome: 'scored' as const,
      openedAt: new Date(at.getTime() + 400 * (i % 4)),
      endedAt: sealedAt(i),
      seconds: { agent: 2 + i, verify: 0.8, ...(i % 3 === 2 ? { engine_wait: 1.5 } : {}) },
    })),
  );
}

/** Adds a group whose work is lost in every way: dropped, tried again, cut, and with calls that are not trained. */
export async function recordLosses(db: Database, runId: string, iteration: number): Promise<void> {
  const groupId = `${runId}/${iteration}.1/90`;
  const place = { runId, groupId, task: '/tasks/lost', agent: 'oneshot' };
  await db.insert(groups).values({
    id: groupId,
    runId,
    kind: 'train',
    iteration,
    take: 1,
    ordinal: 90,
    task: '/tasks/lost',
    agent: 'oneshot',
    size: 2,
    policyVersion: iteration,
    dropped: 'stale',
    endedAt: new Date(),
  });
  const again = `${runId}-${iteration}.1-90-0`;
  await openAttempt(db, { trialId: again, attempt: 1, trialIndex: 0, ...place });
  await sealAttempt(db, {
    trialId: again,
    attempt: 1,
    outcome: 'infra_error',
    reason: 'the host was lost',
    evidence: 'host',
    host: 'host-worker-1',
  });
  await openAttempt(db, { trialId: again, attempt: 2, trialIndex: 0, ...place });
  const choice = {
    completionTokenIds: Int32Array.of(7, 8),
    logprobs: Float32Array.of(-0.1, -2),
    policyVersion: iteration,
    untrainable: 'truncated_sampling',
    finishReason: 'stop',
  };
  await recordCalls(db, [callRecord({ trialId: again, attempt: 2, promptTokenIds: Int32Array.of(1, 2), choice })]);
  await sealAttempt(db, { trialId: again, attempt: 2, outcome: 'truncated', reason: 'its budget of calls is used' });
  const failed = `${runId}-${iteration}.1-90-1`;
  await openAttempt(db, { trialId: failed, attempt: 1, trialIndex: 1, ...place });
  await sealAttempt(db, { trialId: failed, attempt: 1, outcome: 'agent_error', reason: 'KeyError: 7' });
  await db
    .insert(quarantinedTasks)
    .values({ runId, task: '/tasks/broken', reason: 'its groups failed 3 times in a row' });
}

type ConversationOf = {
  trialId: string;
  place: { runId?: string; groupId?: string; trialIndex?: number; task?: string; agent?: string };
};
type Texts = { system: string; user: string; reply: string; tool: string; name: string; output: string };

/** Records a trial of two calls with a tool between them, whose texts are these. */
export async function recordConversation(
  db: Database,
  { trialId, place }: ConversationOf,
  texts: Texts,
  reward: number,
): Promise<void> {
  await openAttempt(db, { trialId, attempt: 1, ...place });
  const messages = [
    { role: 'system', content: texts.system },
    { role: 'user', content: [{ type: 'text', text: texts.user }] },
  ];
  const call = {
    role: 'assistant',
    content: texts.reply,
    tool_calls: [
      { id: 'a', type: 'function', function: { name: texts.name, arguments: JSON.stringify({ path: texts.tool }) } },
    ],
  };
  const last = { role: 'assistant', content: `Done. ${texts.reply}` };
  const prompt = Int32Array.from({ length: 40 }, (_, i) => 100 + i);
  const first = { ids: Int32Array.from({ length: 30 }, (_, i) => 500 + i), at: prompt };
  const second = {
    ids: Int32Array.from({ length: 12 }, (_, i) => 900 + i),
    at: Int32Array.from([...prompt, ...first.ids, 11, 12, 13]),
  };
  const logprobs = (ids: Int32Array) => Float32Array.from(ids, (_, i) => -((i % 11) ** 2) / 20);
  const startedAt = new Date(Date.now() - 60_000);
  const tools = [{ type: 'function', function: { name: texts.name, parameters: {} } }];
  const callOf = (asked: unknown[], message: unknown, { ids, at }: typeof first, base: Base | null) =>
    callRecord({
      trialId,
      request: { messages: asked, tools },
      sampling: { tools_not_shown: tools.length },
      base,
      parentId: base?.callId ?? null,
      continuation: base && 'clean',
      promptTokenIds: at,
      startedAt: new Date(startedAt.getTime() + at.length * 100),
      endedAt: new Date(startedAt.getTime() + at.length * 100 + 2_500),
      response: { choices: [{ index: 0, message, finish_reason: 'stop' }] },
      choice: {
        completionTokenIds: ids,
        logprobs: logprobs(ids),
        finishReason: 'stop',
        policyVersion: 2,
        versionSpans: base && [
          { version: 2, start: 0, end: 5 },
          { version: 3, start: 5, end: 12 },
        ],
      },
    });
  const begun = callOf(messages, call, first, null);
  const keys = (items: unknown[]): string[] => items.map((item) => itemKey(contentOf(item)));
  const base = {
    callId: begun.id,
    tokenIds: Int32Array.from([...first.at, ...first.ids]),
    lists: { messages: keys(messages), tools: keys(tools) },
    text: '',
  };
  await recordCalls(db, [begun]);
  const later = [...messages, call, { role: 'tool', tool_call_id: 'a', content: texts.output }];
  await recordCalls(db, [callOf(later, last, second, base)]);
  await recordOutput(db, { trialId, attempt: 1, program: 'agent', stdout: texts.output, stderr: texts.reply });
  await sealAttempt(db, {
    trialId,
    attempt: 1,
    outcome: 'scored',
    rewards: { reward },
    seconds: { sandbox: 0.3, agent: 7.1, verify: 1.2 },
  });
}
