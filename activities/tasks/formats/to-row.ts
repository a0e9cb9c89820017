import { z } from 'zod';
import { TrialgateError } from '../../../core/errors.ts';
import type { JsonObject } from '../../../core/json.ts';
import type { NumberedRow } from './index.ts';

const jsonObject = z.record(z.string(), z.unknown());

/** Takes the place of a text whose bytes are not UTF-8. */
export const NOT_UTF8: unique symbol = Symbol('a text that is not UTF-8');

/**
 * Returns a row as JSON: a whole number that JavaScript holds exactly stays a number; a larger one and a date become texts, and bytes their
 * base64.
 * @throws TrialgateError `bad_input` that names the column of a text that is not UTF-8
 */
export function toRow(given: object, where: string): NumberedRow {
  const binary = new Set<string>();
  const row: JsonObject = {};
  for (const [column, value] of Object.entries(given)) {
    const json = JSON.stringify({ value }, (_key, each: unknown) => {
      if (each === NOT_UTF8) throw notUtf8(where, column);
      if (each instanceof Uint8Array) {
        binary.add(column);
        return Buffer.from(each).toString('base64');
      }
      if (typeof each === 'bigint') return Number.isSafeInteger(Number(each)) ? Number(each) : String(each);
      return each;
    });
    row[column] = jsonObject.parse(JSON.parse(json))['value'] ?? null;
  }
  return { row, where, ...(binary.size > 0 ? { binary: [...binary] } : {}) };
}

export const notUtf8 = (where: string, column: string): TrialgateError =>
  new TrialgateError(
    'bad_input',
    `${where}: the column \`${column}\` has a text that is not UTF-8: write the file again as UTF-8`,
  );
