/**
 * Measures the size of a trial's record in PostgreSQL (`pg_total_relation_size`). Compares it with the trial's distinct content (4 bytes
 * for each token id and log-probability, UTF-8 of distinct messages) and with storing each call whole.
 *
 *   node bench/record-size.ts --trials 20 --turns 50 --tokens 30000
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { sql } from 'drizzle-orm';
import { REPOSITORY } from '../core/repository.ts';
import { table } from '../cli/show/table.ts';
import { generator } from '../tests/support/scenarios/converse.ts';
import { Conversations } from '../gateway/conversations/conversations.ts';
import { conversationOf } from '../gateway/conversations/messages.ts';
import { outlineOf } from '../store/calls/outline.ts';
import { openDatabase, type Database } from '../store/database.ts';
import type { JsonObject } from '../core/json.ts';
import { findTrials } from '../store/queries/find-trials.ts';
import { openAttempt } from '../store/queries/open-attempt.ts';
import { readNewCalls } from '../store/queries/read-new-calls.ts';
import { readTurn } from '../store/queries/read-turn.ts';
import { recordCalls } from '../store/queries/record-calls.ts';
import { TestPostgres } from '../tests/support/harness/postgres.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';

const { trials, turns, tokens } = optionsOf(import.meta.url, { trials: 20, turns: 50, tokens: 30_000 });

const SYLLABLES = 'ba de ki lo mu na pe ri so tu va xe yo zi ar el in os un qu'.split(' ');

/** Yields a trial of `turns` calls. Its last context has `tokens` tokens, a third of them sampled, with about four letters a token. */
function* conversation(
  seed: number,
): Generator<{ request: JsonObject; response: JsonObject; prompt: number[]; completion: number[] }> {
  const random = generator(seed);
  const ids = (count: number) => Array.from({ length: count }, () => Math.floor(random() * 150_000));
  const text = (count: number) =>
    Array.from(
      { length: count * 2 },
      () => SYLLABLES[Math.floor(random() * SYLLABLES.length)] + (random() < 0.4 ? ' ' : ''),
    ).join('');
  const perTurn = Math.floor(tokens / turns);
  const sampledTokens = Math.floor(perTurn / 3);
  const messages: JsonObject[] = [{ role: 'system', content: text(perTurn - sampledTokens) }];
  let context = ids(perTurn - sampledTokens);
  for (let turn = 0; turn < turns; turn++) {
    const completion = ids(sampledTokens);
    const message = { role: 'assistant', content: text(sampledTokens) };
    const prompt = context;
    const head = { id: `chatcmpl-${turn}`, object: 'chat.completion', created: 1, model: 'policy' };
    const usage = {
      prompt_tokens: prompt.length,
      completion_tokens: sampledTokens,
      total_tokens: prompt.length + sampledTokens,
    };
    const choice = {
      index: 0,
      message: { ...message, refusal: null, tool_calls: [] },
      finish_reason: 'stop',
      stop_reason: null,
    };
    yield {
      request: { model: 'policy', messages: [...messages] },
      response: { ...head, choices: [choice], usage },
      prompt,
      completion,
    };
    const observed = perTurn - sampledTokens;
    messages.push(message, { role: 'user', content: text(observed) });
    context = [...prompt, ...completion, ...ids(observed)];
  }
}

const distinct = { ids: 0, logprobs: 0, texts: 0 };
const sampling = {
  temperature: 1,
  top_p: 1,
  top_k: -1,
  min_p: 0,
  presence_penalty: 0,
  frequency_penalty: 0,
  repetition_penalty: 1,
  max_tokens: 512,
};

async function record(db: Database, trialId: string, seed: number): Promise<void> {
  const conversations = new Conversations({
    readNew: (after) => readNewCalls(db, after),
    readTurn: (callId, known) => readTurn(db, callId, known),
  });
  await openAttempt(db, { trialId });
  const messages = new Set<string>();
  let last = 0;
  for (const { request, response, prompt, completion } of conversation(seed)) {
    const [trial] = await findTrials(db, [trialId]);
    const { base, known, parent } = await conversations.find(
      { trialId, attempt: 1, recorded: trial?.recorded ?? 0 },
      conversationOf(request),
    );
    const [id, now] = [crypto.randomUUID(), new Date()];
    const choice = {
      id,
      completionTokenIds: Int32Array.from(completion),
      logprobs: Float32Array.from(completion, (each) => -Math.log(each + 2)),
      finishReason: 'stop',
      policyVersion: 3,
      versionSpans: null,
      untrainable: null,
    };
    const call = {
      id,
      trialId,
      attempt: 1,
      status: 'completed' as const,
      protocol: 'chat_completions' as const,
      httpStatus: 200,
      stream: false,
      startedAt: now,
      firstTokenAt: now,
      endedAt: now,
      digest: new Uint8Array(32),
      request: outlineOf(request),
      response,
      promptTokenIds: Int32Array.from(prompt),
      base,
      known,
      sampling,
      engine: 'unix:/run/trialgate/engine.sock',
      weightVersion: 'bench-run@3',
      parentId: parent?.callId ?? null,
      continuation: parent ? ('clean' as const) : null,
      choices: [choice] as const,
    };
    await recordCalls(db, [call]);
    conversations.add(conversationOf(request), call);
    distinct.logprobs += 4 * completion.length;
    last = prompt.length + completion.length;
    for (const message of [
      ...(request.messages as JsonObject[]),
      { role: 'assistant', content: (response.choices as { message: { content: string } }[])[0]?.message.content },
    ])
      messages.add(JSON.stringify(message));
    // Store each call whole, as a recorder without conversations would.
    await db.execute(
      sql`insert into whole values (${id}, ${JSON.stringify(request)}, ${JSON.stringify(response)}, ${Buffer.from(Int32Array.from(prompt).buffer)}, ${Buffer.from(choice.completionTokenIds.buffer)}, ${Buffer.from(choice.logprobs.buffer)})`,
    );
  }
  distinct.ids += 4 * last;
  for (const message of messages) distinct.texts += Buffer.byteLength(message);
}

const postgres = await TestPostgres.create();
const db = openDatabase(postgres.url);
try {
  await db.execute(
    sql`create table whole (id uuid primary key, request text, response text, prompt bytea, completion bytea, logprobs bytea)`,
  );
  for (let trial = 0; trial < trials; trial++) await record(db, `run-bench-0.1-${trial}-0`, trial);
  const sizeOf = async (name: string) =>
    Number(
      (await db.execute<{ size: string }>(sql`select pg_total_relation_size(${name}::regclass) as size`)).rows[0]?.size,
    );
  const content = distinct.ids + distinct.logprobs + distinct.texts;
  const [stored, whole] = [await sizeOf('calls'), await sizeOf('whole')];
  const kb = (bytes: number) => (bytes / trials / 1000).toFixed(0);
  const row = (what: string, bytes: number) => [what, kb(bytes), (bytes / content).toFixed(2)];
  const text = table(
    ['a trial', 'kB', '× distinct content'],
    [
      row('ids', distinct.ids),
      row('log-probabilities', distinct.logprobs),
      row('messages', distinct.texts),
      row('distinct content', content),
      row('calls', stored),
      row('each call whole', whole),
    ],
  );
  console.log(text);
  mkdirSync(join(REPOSITORY, 'bench/results'), { recursive: true });
  writeFileSync(
    join(REPOSITORY, 'bench/results/record-size.txt'),
    `${JSON.stringify(provenance(), null, 2)}\n\n${text}\n`,
  );
} finally {
  await db.$client.end();
  await postgres.close();
}
