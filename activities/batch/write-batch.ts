import {
  Binary,
  Field,
  Float32,
  Float64,
  Int32,
  Int8,
  List,
  Map_,
  RecordBatchFileWriter,
  Schema,
  Struct,
  Table,
  Utf8,
  makeBuilder,
  Vector,
  type DataType,
} from 'apache-arrow';
import { MOST_BYTES, tooLarge } from './routed-experts.ts';
import type { Sample } from './sample.ts';
import { storeBatch } from './store-batch.ts';

const list = <T extends DataType>(type: T) => new List(new Field('item', type, true));

/** Writes an immutable Arrow IPC file named by its own SHA-256, with a row for each sample. The same samples give the same file. */
export async function writeBatch(
  folder: string,
  samples: Sample[],
  mostBytes = MOST_BYTES,
): Promise<{ sha256: string; path: string }> {
  const bytes = encode(samples);
  if (bytes.byteLength > mostBytes) throw tooLarge('the file of this batch takes');
  return storeBatch(folder, bytes);
}

function encode(samples: Sample[]): Uint8Array {
  const entry = new Struct<{ key: Utf8; value: Float64 }>([
    new Field('key', new Utf8(), false),
    new Field('value', new Float64(), true),
  ]);
  const rewards = new Map_(new Field('entries', entry, false), true);
  const turnEntry = new Struct<{ key: Utf8; value: List<Float64> }>([
    new Field('key', new Utf8(), false),
    new Field('value', list(new Float64()), true),
  ]);
  const turnRewards = new Map_(new Field('entries', turnEntry, false), true);
  const expertRows = new Struct<{ start: Int32; end: Int32; form: Utf8; rows: Binary }>([
    new Field('start', new Int32(), false),
    new Field('end', new Int32(), false),
    new Field('form', new Utf8(), false),
    new Field('rows', new Binary(), false),
  ]);
  const hasTurns = samples.some((s) =>
    [s, ...s.companions].some((earned) => Object.keys(earned.turnRewards).length > 0),
  );
  const columns = {
    token_ids: column(
      list(new Int32()),
      samples.map((s) => Array.from(s.tokenIds)),
    ),
    loss_mask: column(
      list(new Int8()),
      samples.map((s) => Array.from(s.lossMask)),
    ),
    logprobs: column(
      list(new Float32()),
      samples.map((s) => Array.from(s.logprobs)),
    ),
    // Null means that the log-probability is normalized over all ids.
    sampling_mask: column(
      list(list(new Int32())),
      samples.map((s) => s.samplingMask),
    ),
    policy_versions: column(
      list(new Int32()),
      samples.map((s) => s.policyVersions),
    ),
    temperature: column(
      new Float32(),
      samples.map((s) => s.temperature),
    ),
    rewards: column(
      rewards,
      samples.map((s) => entries(s.rewards)),
    ),
    companions: column(
      list(rewards),
      samples.map((s) => s.companions.map((c) => entries(c.rewards))),
    ),
    // These columns are absent without rewards of turns, so that such a batch is the same file as in earlier releases.
    ...(hasTurns
      ? {
          turns: column(
            list(new Int32()),
            samples.map((s) => s.turns),
          ),
          turn_rewards: column(
            turnRewards,
            samples.map((s) => entries(s.turnRewards)),
          ),
          companion_turn_rewards: column(
            list(turnRewards),
            samples.map((s) => s.companions.map((c) => entries(c.turnRewards))),
          ),
        }
      : {}),
    ...(samples.some((s) => s.teacherLogprobs)
      ? {
          teacher_logprobs: column(
            list(new Float32()),
            samples.map((s) => s.teacherLogprobs),
          ),
        }
      : {}),
    // A batch is made for router replay if it has this column, also where no call has experts.
    ...(samples.some((s) => s.expertRows)
      ? {
          routed_experts: column(
            list(expertRows),
            samples.map((s) => s.expertRows ?? []),
          ),
        }
      : {}),
    group_id: column(
      new Utf8(),
      samples.map((s) => s.groupId),
    ),
    trial_id: column(
      new Utf8(),
      samples.map((s) => s.trialId),
    ),
    attempt: column(
      new Int32(),
      samples.map((s) => s.attempt),
    ),
    call_ids: column(
      list(new Utf8()),
      samples.map((s) => s.callIds),
    ),
  };
  const schema = new Schema(Object.entries(columns).map(([name, vector]) => new Field(name, vector.type, false)));
  return RecordBatchFileWriter.writeAll(new Table(schema, columns)).toUint8Array(true);
}

const entries = <T>(named: Record<string, T>) => new Map(Object.entries(named).toSorted());

function column(type: DataType, values: unknown[]): Vector {
  const builder = makeBuilder({ type, nullValues: [null] });
  for (const value of values) builder.append(value);
  return builder.finish().toVector();
}
