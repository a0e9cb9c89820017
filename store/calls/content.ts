import { hash } from 'node:crypto';
import { stringifyExact } from '../../core/exact-json.ts';
import { isObject, type JsonObject } from '../../core/json.ts';

/**
 * A value that is stored once and referred to by its digest. `core` has the fields that are not empty, sorted by name, and the digest
 * covers only it: so a message has the same digest when the agent sends it back. `empty` has the other fields: null, an empty list or an
 * empty text.
 */
export type Content = { digest: string; core: unknown; empty: JsonObject | null };

/** The length of a digest in characters: 128 bits of SHA-256 in base64url, which is unique enough within one trial. */
export const DIGEST_LENGTH = 22;

/** Splits a value into its core and its empty fields. */
export function contentOf(value: unknown): Content {
  if (!isObject(value)) return { digest: digestOf(value), core: value, empty: null };
  const core: [string, unknown][] = [];
  const empty: [string, unknown][] = [];
  for (const key of Object.keys(value).toSorted()) (isEmpty(value[key]) ? empty : core).push([key, value[key]]);
  const fields = Object.fromEntries(core);
  return { digest: digestOf(fields), core: fields, empty: empty.length > 0 ? Object.fromEntries(empty) : null };
}

export const withEmptyFields = (core: unknown, empty: JsonObject | null | undefined): unknown =>
  empty && isObject(core) ? { ...core, ...empty } : core;

const isEmpty = (value: unknown): boolean =>
  value === null || value === undefined || value === '' || (Array.isArray(value) && value.length === 0);

/** Returns the digest of a value's JSON. */
export const digestOf = (value: unknown): string =>
  hash('sha256', value === undefined ? '' : stringifyExact(value), 'base64url').slice(0, DIGEST_LENGTH);
