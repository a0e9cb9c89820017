/**
 * Measures many callers of one trial, many trials, and several gateways, with real gateway processes and PostgreSQL and an engine that answers at once.
 * Each rate is compared with a baseline of the same run, because a ratio does not depend on the machine.
 * This also runs against older code: copy this file and report.ts there.
 */
import { randomInt } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Agent, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { z } from 'zod';
import { GatewayProcess } from '../../tests/support/harness/gateway-process.ts';
import { EngineServer, json } from '../../tests/support/fakes/engine-server.ts';
import { attemptKey } from '../../core/keys.ts';
import { openDatabase } from '../../store/database.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { TestPostgres } from '../../tests/support/harness/postgres.ts';
import { optionsOf } from '../options.ts';
import { reportAttacks, type Attack } from './report.ts';

const options = optionsOf(import.meta.filename, {
  rounds: 3,
  turns: 40,
  calls: 10_000,
  trials: 5_000,
  kilobytes: 50,
  long: 4_000,
  seconds: 180,
});
const SECRET = 'a secret of sixteen characters';
const CALLERS = 32;
/** A conversation restarts after this number of turns, so that the size of a request does not grow with its trial. */
const TURNS = 4;

/** The engine returns one id for every four characters of a prompt, roughly as a tokenizer does, and a reply of 16 ids. */
class QuickEngine extends EngineServer {
  readonly #prompts = new Map<number, string>();

  protected async respond(asked: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await text(asked);
    if (asked.url === '/weight_info') return json(response, { weight_version: 'default' });
    if (asked.url === '/v1/models')
      return json(response, { object: 'list', data: [{ id: 'policy', object: 'model', max_model_len: 1_000_000 }] });
    if (asked.url !== '/v1/chat/completions') return json(response, {}, 404);
    const length = Math.ceil(body.length / 4);
    const prompt = this.#prompts.get(length) ?? JSON.stringify(Array.from({ length }, (_, i) => i % 50_000));
    this.#prompts.set(length, prompt);
    const ids = Array.from({ length: 16 }, () => randomInt(50_000));
    const choice = {
      index: 0,
      message: { role: 'assistant', content: ids.join(' ') },
      logprobs: { content: ids.map((id) => ({ token: `token_id:${id}`, logprob: -1 })) },
      finish_reason: 'stop',
      token_ids: ids,
    };
    const usage = { prompt_tokens: length, completion_tokens: 16, total_tokens: length + 16 };
    const rest = JSON.stringify({
      id: 'chatcmpl',
      object: 'chat.completion',
      created: 1,
      model: 'policy',
      choices: [choice],
      usage,
    });
    response
      .writeHead(200, { 'content-type': 'application/json' })
      .end(`{"prompt_token_ids":${prompt},${rest.slice(1)}`);
  }
}

const completion = z.object({
  choices: z.tuple([z.object({ message: z.object({ role: z.string(), content: z.string() }) })]),
});
type Message = { role: string; content: string };
type CallResult = { status: number; ms: number };
const agent = new Agent({ keepAlive: true, maxSockets: 1_000 });

const postgres = await TestPostgres.create();
const db = openDatabase(postgres.url);
const engine = await new QuickEngine().start();
const given = { engines: [engine.url], databaseUrl: postgres.url, adminKey: 'the admin key', secret: SECRET };
const [first, second] = [new GatewayProcess(given), new GatewayProcess(given)];
let trials = 0;
const attacks: Attack[] = [];

async function open(): Promise<string> {
  const trialId = `trial-${trials++}`;
  await openAttempt(db, { trialId });
  return trialId;
}

/** Makes one call, which the gateway must answer, and returns its milliseconds. A refusal is fast, and would make a slow gateway look good. */
async function mustAnswer(gateway: GatewayProcess, trialId: string, messages: Message[]): Promise<number> {
  const { status, ms } = await ask(gateway, trialId, messages);
  if (status !== 200) throw new Error(`a call of ${trialId} was answered ${status}`);
  return ms;
}

/** Makes one call and adds its reply to the messages. */
async function ask(gateway: GatewayProcess, trialId: string, messages: Message[]): Promise<CallResult> {
  const began = performance.now();
  const body = JSON.stringify({ messages });
  const headers = {
    authorization: `Bearer ${attemptKey(SECRET, trialId, 1)}`,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
  };
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  request(`${gateway.url}/${trialId}/v1/chat/completions`, { method: 'POST', agent, headers }, resolve)
    .on('error', reject)
    .end(body);
  const reply = await promise;
  const replyText = await text(reply);
  const status = reply.statusCode ?? 0;
  if (status === 200) messages.push(completion.parse(JSON.parse(replyText)).choices[0].message);
  return { status, ms: performance.now() - began };
}

/** Makes one caller's calls, in short conversations one after the other. */
async function converse(
  gateway: GatewayProcess,
  trialId: string,
  calls: number,
  onReply: (asked: CallResult) => void,
): Promise<void> {
  let messages: Message[] = [];
  for (let i = 0; i < calls; i++) {
    if (i % TURNS === 0) messages = [{ role: 'user', content: `conversation ${randomInt(2 ** 47)}` }];
    else messages.push({ role: 'user', content: `turn ${i}` });
    onReply(await ask(gateway, trialId, messages));
  }
}

/** Returns the calls per second of callers that are assigned to the trials in turn. */
async function rateOf(
  of: readonly string[],
  callers: number,
  calls: number,
): Promise<{ rate: number; refused: number }> {
  let [answered, refused] = [0, 0];
  const began = performance.now();
  const count = ({ status }: CallResult) => (status === 200 ? (answered += 1) : (refused += 1));
  await Promise.all(Array.from({ length: callers }, (_, i) => converse(first, of[i % of.length] ?? '', calls, count)));
  return { rate: (1000 * answered) / (performance.now() - began), refused };
}

const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN;
const round = (value: number): string => value.toFixed(value < 10 ? 2 : 0);

function judge(attack: Pick<Attack, 'id' | 'attack'>, holds: boolean, note: string): void {
  attacks.push({ severity: 'high', ...attack, tried: 1, held: holds ? 1 : 0, note });
  console.error(`${attack.id} ${attack.attack}: ${holds ? 'held' : 'failed'}; ${note}`);
}

async function oneTrialOrMany(): Promise<void> {
  const [one, many]: [number[], number[]] = [[], []];
  let refused = 0;
  for (let i = 0; i <= options.rounds; i++) {
    const measured = [
      await rateOf([await open()], CALLERS, options.turns),
      await rateOf(await Promise.all(Array.from({ length: CALLERS }, open)), CALLERS, options.turns),
    ];
    for (const each of measured) refused += each.refused;
    // The first round warms up the gateway.
    if (i > 0) [one, many].forEach((rates, which) => rates.push(measured[which]?.rate ?? NaN));
  }
  const ratio = median(one.map((rate, i) => rate / (many[i] ?? NaN)));
  judge(
    { id: 'A5', attack: `one trial of ${CALLERS} callers runs at least half as fast as ${CALLERS} trials` },
    refused === 0 && ratio >= 0.5,
    `${round(median(one))} and ${round(median(many))} calls/s, median ratio ${round(ratio)}, ${refused} refused`,
  );
}

/** Compares the first tenth with the last tenth, after a tenth for warming up. */
async function flat(): Promise<void> {
  const trialId = await open();
  const at: number[] = [];
  let refused = 0;
  const onReply = ({ status }: CallResult) => (status === 200 ? at.push(performance.now()) : (refused += 1));
  const deadline = performance.now() + 1000 * options.seconds;
  const began = performance.now();
  await Promise.all(
    Array.from({ length: CALLERS }, async () => {
      while (at.length < options.calls && performance.now() < deadline) await converse(first, trialId, TURNS, onReply);
    }),
  );
  const tenth = Math.floor(options.calls / 10);
  const rate = (from: number) => (1000 * tenth) / ((at[from + tenth] ?? NaN) - (at[from] ?? NaN));
  const [early, late] = [rate(tenth), rate(options.calls - tenth - 1)];
  const rates =
    at.length < options.calls
      ? `${at.length} calls in ${round((performance.now() - began) / 1000)} s`
      : `${round(early)} calls/s in the second tenth, ${round(late)} in the last`;
  const holds = refused === 0 && at.length >= options.calls && late >= 0.8 * early;
  judge(
    { id: 'A5', attack: `one trial is as fast after ${options.calls} calls as at its beginning (0.8)` },
    holds,
    `${rates}, ${refused} refused`,
  );
}

async function manyCallers(): Promise<void> {
  const { rate, refused } = await rateOf([await open()], 128, 10);
  judge(
    { id: 'A5', attack: '128 callers of one trial are all answered' },
    refused === 0,
    `${refused} of 1280 refused, ${round(rate)} calls/s`,
  );
}

/** Makes second turns of trials with this number of characters. Returns the calls per second of 8 callers. */
async function secondTurns(of: Map<string, Message[]>): Promise<number> {
  const waiting = [...of];
  const began = performance.now();
  const work = async () => {
    for (let next = waiting.pop(); next; next = waiting.pop()) {
      const [trialId, messages] = next;
      messages.push({ role: 'user', content: 'go on' });
      await mustAnswer(first, trialId, messages);
    }
  };
  await Promise.all(Array.from({ length: 8 }, work));
  return (1000 * of.size) / (performance.now() - began);
}

/** Makes trials with one large turn each. */
async function openLarge(count: number): Promise<Map<string, Message[]>> {
  const opened = new Map<string, Message[]>();
  const words = 'a question with many words in it '.repeat(Math.ceil((options.kilobytes * 1000) / 33));
  const work = async () => {
    while (opened.size < count) {
      const trialId = await open();
      const messages = [{ role: 'user', content: `${trialId} ${words}` }];
      opened.set(trialId, messages);
      await mustAnswer(first, trialId, messages);
    }
  };
  await Promise.all(Array.from({ length: 8 }, work));
  return opened;
}

async function manyTrials(): Promise<void> {
  const sampleOf = (all: Map<string, Message[]>) =>
    new Map([...all].filter((_, i) => i % Math.ceil(all.size / 200) === 0));
  await secondTurns(await openLarge(200));
  const few = await secondTurns(await openLarge(200));
  const all = await openLarge(options.trials);
  const many = await secondTurns(sampleOf(all));
  judge(
    {
      id: 'A6',
      attack: `with ${options.trials} trials of ${options.kilobytes} KB open, their next calls run at least half as fast as with 200`,
    },
    many >= 0.5 * few,
    `${round(many)} and ${round(few)} calls/s`,
  );
}

async function alternate(): Promise<void> {
  const between = async (trialId: string): Promise<number> => {
    const messages: Message[] = [{ role: 'user', content: `alternating ${trialId}` }];
    const times: number[] = [];
    for (let i = 0; i < 40; i++) {
      const ms = await mustAnswer(i % 2 === 0 ? second : first, trialId, messages);
      messages.push({ role: 'user', content: `and ${i}` });
      // The second gateway's first calls read the existing records, so they are left out.
      if (i >= 4) times.push(ms);
    }
    return median(times);
  };
  await between(await open());
  const short = await between(await open());
  const trialId = await open();
  const { refused } = await rateOf([trialId], CALLERS, Math.ceil(options.long / CALLERS));
  if (refused > 0) throw new Error(`${refused} calls of the long trial were refused`);
  const long = await between(trialId);
  judge(
    {
      id: 'A6',
      attack: `two gateways that take turns at a trial of ${options.long} calls read what is new (twice a new trial's time)`,
    },
    long <= 2 * short,
    `${round(long)} ms a call, of a new trial ${round(short)} ms`,
  );
}

try {
  await Promise.all([first.start(), second.start()]);
  for (const [id, run] of [
    ['A5', oneTrialOrMany],
    ['A5', flat],
    ['A5', manyCallers],
    ['A6', manyTrials],
    ['A6', alternate],
  ] as const) {
    await run().catch((error: unknown) => judge({ id, attack: run.name }, false, String(error)));
  }
} finally {
  agent.destroy();
  await Promise.all([first.kill('SIGTERM'), second.kill('SIGTERM')]);
  await engine.stop();
  await db.$client.end();
  await postgres.close();
}
process.exitCode = reportAttacks(attacks);
