import type { RecordedTurn } from '../conversations/conversations.ts';
import { isObject } from '../json.ts';
import type { SampledExperts, WeightVersionSpan } from './call-result.ts';

/** Reads `[{version, start, end}]`. Returns null when the engine does not report versions. */
export function spansIn(spans: unknown): WeightVersionSpan[] | null {
  if (!Array.isArray(spans) || spans.length === 0) return null;
  const known = spans.flatMap((span) =>
    isObject(span) && typeof span.version === 'string' && Number.isInteger(span.start) && Number.isInteger(span.end)
      ? [{ weightVersion: span.version, start: Number(span.start), end: Number(span.end) }]
      : [],
  );
  return known.length === spans.length ? known : null;
}

/** Returns the first token whose experts a turn's own record does not have. It is the turn's last one, which no layer had read. */
export const newExpertsFrom = ({ tokenIds }: Pick<RecordedTurn, 'tokenIds'>): number => tokenIds.length - 1;

/** The most characters that the experts' base64 may have. The record of a call leaves out longer ones. */
const MOST_EXPERTS = 64 * 2 ** 20;

export const expertsIn = (value: unknown, form: SampledExperts['form'], start: number): SampledExperts | null =>
  typeof value === 'string' && value.length <= MOST_EXPERTS ? { base64: value, form, start } : null;

/** True for ids that fit the record's 32 bits. No engine uses the sign. */
const isId = (value: unknown): value is number => typeof value === 'number' && (value | 0) === value && value >= 0;
export const idsIn = (value: unknown): number[] | null => (Array.isArray(value) && value.every(isId) ? value : null);

/** Reads one list of ids for each sampled token. */
export function maskIn(value: unknown): number[][] | null {
  if (!Array.isArray(value)) return null;
  const mask = value.flatMap((ids) => [idsIn(ids)].filter((each) => each !== null));
  return mask.length === value.length ? mask : null;
}
