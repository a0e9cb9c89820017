import { hash } from 'node:crypto';
import type { calls, CallStatus, Continuation, Fault, RoutedExperts, VersionSpan } from '../schema.ts';
import { stringifyExact } from '../../core/exact-json.ts';
import type { JsonObject } from '../../core/json.ts';
import { sharedLength } from '../../core/token-ids.ts';
import { ROW_BYTES } from '../trial-bytes.ts';
import type { Outline } from './outline.ts';
import { packMask, type SamplingMask } from './sampling-mask.ts';
import { shorten, type Base, type KnownContents } from './shorten.ts';

type Row = typeof calls.$inferInsert;

/** One reply of a call. */
export type ChoiceRecord = {
  id: string;
  completionTokenIds: Int32Array | null;
  /** In nats. */
  logprobs: Float32Array | null;
  /** The ids that could be sampled at each token; absent when the engine did not return them. */
  samplingMask?: SamplingMask | null;
  /** The experts that were chosen for each token, in base64; absent when the engine did not return them. */
  experts?: (Pick<RoutedExperts, 'form' | 'start'> & { base64: string }) | null;
  finishReason: string | null;
  policyVersion: number | null;
  versionSpans: VersionSpan[] | null;
  untrainable: string | null;
};

/** One request to the model with its replies. The first reply has the call's id. A call without a reply has one choice without tokens. */
export type CallRecord = Pick<
  Row,
  'id' | 'trialId' | 'attempt' | 'httpStatus' | 'protocol' | 'stream' | 'startedAt' | 'endedAt'
> & {
  status: CallStatus;
  reason?: string | null;
  fault?: Fault | null;
  /** SHA-256 of the request's bytes. */
  digest?: Uint8Array | null;
  idempotencyKey?: string | null;
  /** In the form of W3C Trace Context. */
  traceparent?: string | null;
  /** True when the client marks its retries. A completed call then counts as undelivered until the gateway reports its delivery. */
  isRetryable?: boolean;
  /** The size of the request's body in bytes, as it was received. */
  requestBytes?: number | null;
  request: Outline;
  /** The reply as the agent receives it. Its choices are those of the record. */
  response?: JsonObject | null;
  promptTokenIds?: Int32Array | null;
  base?: Base | null;
  /** The contents that earlier calls of the attempt stored. */
  known?: KnownContents;
  sampling: JsonObject;
  /** True when the call has reserved its part of the trial's budgets. It is refused when that reservation was lost. */
  reserved?: boolean;
  /** True when the call uses up the rest of the trial's budget of bytes instead of being refused. This is for calls without bodies. */
  fillsBytes?: boolean;
  /** The approximate size of the record in memory, in bytes. */
  size?: number;
  engine?: string | null;
  weightVersion?: string | null;
  parentId?: string | null;
  continuation?: Continuation | null;
  firstTokenAt?: Date | null;
  choices: readonly [ChoiceRecord, ...ChoiceRecord[]];
};

/** Returns what the statement reads: rows as JSON, and one block that has their bytes. */
export function toRows(records: readonly CallRecord[]): { rows: JsonObject[]; bytes: Buffer } {
  const block = new Block();
  const stored = new Map<string, number>();
  const rows = records.flatMap((record) => {
    const before = block.size;
    const ofCall = rowsOf(record, block);
    // The bytes that the attempt stores if this call and all before it are admitted, so that a call's rows are admitted together. A late call of an
    // earlier attempt is refused.
    const attempt = `${record.trialId} ${record.attempt}`;
    const bytesSoFar = (stored.get(attempt) ?? 0) + block.size - before + ROW_BYTES * ofCall.length;
    stored.set(attempt, bytesSoFar);
    for (const row of ofCall) row.bytesSoFar = bytesSoFar;
    return ofCall;
  });
  return { rows, bytes: block.bytes() };
}

const NOTHING_KNOWN: KnownContents = new Set();

function rowsOf(record: CallRecord, block: Block): JsonObject[] {
  const { choices, request, base = null, known = NOTHING_KNOWN, response, promptTokenIds: prompt, digest } = record;
  const replies = Array.isArray(response?.choices) ? response.choices : [];
  return choices.map((choice, i) => {
    const isFirst = i === 0;
    // A further reply refers to the first one's row, with which it shares everything else.
    const sharedIds = isFirst ? (base && prompt ? sharedLength(prompt, base.tokenIds) : 0) : (prompt?.length ?? 0);
    const short = isFirst ? shorten(request, base, known) : asFirst(request);
    const reply = response && (replies.length < 2 ? response : { ...(isFirst ? response : {}), choices: [replies[i]] });
    const { samplingMask, experts } = choice;
    return {
      ...record,
      ...NO_COLUMNS,
      startedAt: record.startedAt.getTime(),
      firstTokenAt: record.firstTokenAt?.getTime() ?? null,
      endedAt: record.endedAt.getTime(),
      id: choice.id,
      finishReason: choice.finishReason,
      policyVersion: choice.policyVersion,
      versionSpans: choice.versionSpans,
      untrainable: choice.untrainable,
      choiceOf: isFirst ? null : record.id,
      baseId: isFirst ? (base?.callId ?? null) : record.id,
      sharedIds,
      digest: block.add(digest),
      request: block.add(Buffer.from(stringifyExact(short))),
      response: block.add(reply && Buffer.from(stringifyExact(reply))),
      promptTokenIds: block.add(prompt?.subarray(sharedIds)),
      completionTokenIds: block.add(choice.completionTokenIds),
      logprobs: block.add(choice.logprobs),
      samplingMask: block.add(samplingMask && packMask(samplingMask)),
      ...(experts ? blobOf(experts, block) : {}),
    };
  });
}

/**
 * The fields of a record that are not columns. They are overwritten, because a pattern that takes them out of so many fields takes several
 * times as long. JSON leaves out what is undefined.
 */
const NO_COLUMNS = {
  choices: undefined,
  base: undefined,
  known: undefined,
  size: undefined,
  isRetryable: undefined,
} satisfies Partial<Record<keyof CallRecord, undefined>>;

/** Returns the reference to a reply's experts, and the place of their bytes. */
function blobOf({ base64, form, start }: NonNullable<ChoiceRecord['experts']>, block: Block): JsonObject {
  const bytes = Buffer.from(base64, 'base64');
  const routedExperts: RoutedExperts = { sha256: hash('sha256', bytes), bytes: bytes.byteLength, form, start };
  return { routedExperts, blob: block.add(bytes) };
}

function asFirst({ fields, lists, prompt }: Outline): JsonObject {
  const whole = Object.entries(lists).map(([name, items]) => [name, [items.length, []]]);
  return {
    fields: { as: fields.digest, and: fields.empty ?? undefined },
    lists: Object.fromEntries(whole),
    ...(prompt === null ? {} : { prompt: [prompt.length, ''] }),
  };
}

/** Concatenates bytes: as one parameter of a statement they need no encoding. */
class Block {
  readonly #parts: Uint8Array[] = [];
  size = 0;

  /** Adds bytes and returns their place: [the first byte, counted from 1; the length]. */
  add(part: Uint8Array | Int32Array | Float32Array | null | undefined): [number, number] | null {
    if (!part) return null;
    const at: [number, number] = [this.size + 1, part.byteLength];
    this.#parts.push(part instanceof Uint8Array ? part : new Uint8Array(part.buffer, part.byteOffset, part.byteLength));
    this.size += part.byteLength;
    return at;
  }

  bytes(): Buffer {
    return Buffer.concat(this.#parts, this.size);
  }
}
