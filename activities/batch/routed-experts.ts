import { ApplicationFailure } from '@temporalio/common';
import type { Database } from '../../store/database.ts';
import { readBlob } from '../../store/queries/read-blob.ts';
import type { TrainableCall } from '../../store/samples/build-samples.ts';
import type { ExpertsForm } from '../../store/schema.ts';

/** The part of a sample of which a call recorded the experts: its tokens from `start` to before `end`. */
export type RecordedExperts = { sha256: string; form: ExpertsForm; start: number; end: number };
/** The same with its rows. Bare integers are as narrow as their largest one allows. */
export type ExpertRows = { start: number; end: number; form: ExpertsForm | 'uint8' | 'uint16'; rows: Uint8Array };

/** Arrow counts the bytes of a column's values in 31 bits, and Node.js hashes and reads no more at once. */
export const MOST_BYTES = 2 ** 31 - 1;

/** Returns what a call recorded, or nothing. No layer has read its last token. */
export function recordedBy(call: TrainableCall | undefined): RecordedExperts[] {
  if (!call?.routedExperts) return [];
  const { sha256, form, start } = call.routedExperts;
  return [{ sha256, form, start, end: call.promptTokenIds.length + call.completionTokenIds.length - 1 }];
}

/** Returns the rows of each sample. A blob that is gone is left out: the router of the trainer chooses for its tokens. */
export async function readExperts(
  db: Database,
  samples: readonly { trialId: string; routedExperts?: readonly RecordedExperts[] }[],
  signal: AbortSignal,
): Promise<ExpertRows[][]> {
  let bytes = 0;
  // Samples of a trial share calls.
  const known = new Map<string, Pick<ExpertRows, 'form' | 'rows'> | null>();
  const read: ExpertRows[][] = [];
  for (const { trialId, routedExperts = [] } of samples) {
    const ofSample: ExpertRows[] = [];
    for (const { sha256, form, start, end } of routedExperts) {
      signal.throwIfAborted();
      const key = `${trialId} ${sha256}`;
      let rows = known.get(key);
      if (rows === undefined) {
        const blob = await readBlob(db, trialId, sha256);
        rows = blob && (form === 'int32' ? narrowed(blob) : { form, rows: blob });
        known.set(key, rows);
      }
      if (!rows) continue;
      bytes += rows.rows.byteLength;
      if (bytes > MOST_BYTES) throw tooLarge('the experts that the engines chose for the tokens of this batch take');
      ofSample.push({ start, end, ...rows });
    }
    read.push(ofSample);
  }
  return read;
}

export function tooLarge(what: string): ApplicationFailure {
  const how = 'redo the iteration with fewer groups, or set `enable_router_replay` to false if it is on';
  const message = `${what} more than 2 GiB: ${how}`;
  return ApplicationFailure.create({ type: 'batch_too_large', message, nonRetryable: true });
}

/** Returns 32-bit integers as the narrowest ones that hold them. What are no experts' numbers stays as it is, and the trainer refuses it. */
function narrowed(blob: Buffer): Pick<ExpertRows, 'form' | 'rows'> {
  if (blob.byteLength % 4 !== 0) return { form: 'int32', rows: blob };
  // A negative number is here a very large one.
  const values = new Uint32Array(Uint8Array.from(blob).buffer);
  const largest = values.reduce((most, each) => Math.max(most, each), 0);
  if (largest > 0xffff) return { form: 'int32', rows: blob };
  if (largest <= 0xff) return { form: 'uint8', rows: Uint8Array.from(values) };
  return { form: 'uint16', rows: new Uint8Array(Uint16Array.from(values).buffer) };
}
