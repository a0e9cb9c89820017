import { eq } from 'drizzle-orm';
import { beforeEach, expect, test } from 'vitest';
import { choicesOf } from '../../store/calls/choices.ts';
import { readTrainableCalls } from '../../store/queries/read-trainable-calls.ts';
import { recordDisk } from '../../store/queries/record-disk.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import { buildSamples } from '../../store/samples/build-samples.ts';
import { trials } from '../../store/schema.ts';
import { useTokenGateway } from '../../tests/support/harness/token-gateway.ts';
import { parseRunConfig } from '../../core/run-config/parse-run-config.ts';
import { batchMetrics } from './batch-metrics.ts';

const context = useTokenGateway();
const config = parseRunConfig({ model: 'm', tasks: ['t'], iterations: 1 });
const tools = [{ type: 'function', function: { name: 'ls', parameters: {} } }];
const CALL = '<tool_call>{ "name":"ls",  "arguments": {"path" : "."} }</tool_call>';
const SUMMARY = { role: 'user', content: 'all of it in one line' };
type Trial = Awaited<ReturnType<typeof context.trial>>;

beforeEach(async () => {
  context.toy.weightVersion = 'run@0';
  await context.givePool('run', 'run@0');
});

/** Makes four turns that call tools, each with the whole conversation before it. */
async function converse(trial: Trial): Promise<void> {
  const messages: unknown[] = [{ role: 'user', content: 'go' }];
  for (let turn = 0; turn < 4; turn++) {
    context.toy.script = [{ text: CALL }];
    const [choice] = choicesOf(await context.json(await trial.chat({ messages, tools })));
    messages.push(choice?.message, { role: 'tool', tool_call_id: 'c', content: `a${turn}.txt` });
  }
}

async function metricsOf(talk: (trial: Trial) => Promise<unknown>) {
  const trial = await context.trial({ runId: 'run', groupId: `run/0.1/${crypto.randomUUID()}`, policyVersion: 0 });
  await talk(trial);
  await sealAttempt(context.db, { trialId: trial.id, attempt: 1, outcome: 'scored', rewards: { reward: 1 } });
  const [row] = await context.db.select().from(trials).where(eq(trials.id, trial.id));
  if (!row?.groupId) throw new Error('the trial is gone');
  const { groupId } = row;
  const sequences = buildSamples(await readTrainableCalls(context.db, { trialId: trial.id, attempt: 1 }));
  const samples = sequences.map((sequence) => ({
    ...sequence,
    rewards: { reward: 1 },
    turnRewards: {},
    groupId,
    trialId: trial.id,
    attempt: 1,
    companions: [],
  }));
  const collected = { samples, stale: [], staleness: samples.map(() => 0), trials: [row] };
  return batchMetrics(context.db, config, collected);
}

test('a trial whose agent only appends to its conversation counts 1 sample and no drifted calls', async () => {
  expect(await metricsOf(converse)).toMatchObject({ samples_per_trial: 1, drifted_calls: 0 });
});

test('a batch’s metrics have the disk that its trials used, and 0 when none was counted', async () => {
  const talk = async (trial: Trial) => {
    await trial.chat({ messages: [SUMMARY] });
    await recordDisk(context.db, { trialId: trial.id, attempt: 1, diskBytes: 3 * 2 ** 20 });
  };
  expect(await metricsOf(talk)).toMatchObject({ disk_mib_mean: 3, disk_mib_max: 3 });
  const short = (trial: Trial) => trial.chat({ messages: [SUMMARY] });
  expect(await metricsOf(short)).toMatchObject({ disk_mib_mean: 0, disk_mib_max: 0 });
});

test('a trial whose agent summarizes its conversation counts 2 samples and no drifted calls', async () => {
  const talk = async (trial: Trial) => {
    await converse(trial);
    await trial.chat({ messages: [SUMMARY] });
  };
  expect(await metricsOf(talk)).toMatchObject({ samples_per_trial: 2, drifted_calls: 0 });
});

test('a batch’s metrics count a drifted call on an engine that cannot be asked with token ids', async () => {
  context.toy.scaleOut = false;
  expect(await metricsOf(converse)).toMatchObject({ samples_per_trial: 4, drifted_calls: 1 });
});

test('a drifted prompt with several replies adds one to the drifted calls of its batch', async () => {
  context.toy.scaleOut = false;
  const talk = async (trial: Trial) => {
    context.toy.script = [{ text: CALL }];
    const opening = [{ role: 'user', content: 'go' }];
    const [choice] = choicesOf(await context.json(await trial.chat({ messages: opening, tools })));
    await trial.chat({
      messages: [...opening, choice?.message, { role: 'tool', tool_call_id: 'c', content: 'a.txt' }],
      tools,
      n: 3,
    });
    await trial.chat({ messages: [SUMMARY] });
  };
  expect((await metricsOf(talk)).drifted_calls).toBe(0.5);
});
