import { z } from 'zod';
import type { JsonObject } from '../../../core/json.ts';

const jsonObject = z.record(z.string(), z.unknown());

/** Returns a row as JSON: a whole number that JavaScript holds exactly stays a number; a larger one, a date and bytes become texts. */
export const toRow = (row: unknown): JsonObject => jsonObject.parse(JSON.parse(JSON.stringify(row, asJson)));

function asJson(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
  if (value instanceof Uint8Array) return Buffer.from(value).toString('base64');
  return value;
}
