import { hash } from 'node:crypto';
import { stringifyExact } from '../exact-json.ts';
import { isObject, type JsonObject } from '../json.ts';

/**
 * A value by its content. `core` is what its digest is of: of an object the fields that say something, in the order of their
 * names, so that a message which an agent sends back is the one that it was given. `empty` is the rest: what is null, or a
 * list or a text without anything in it.
 */
export type Content = { digest: string; core: unknown; empty: JsonObject | null };

/** The length of a digest. */
export const DIGEST_LENGTH = 22;

/** 128 bits of a SHA-256 over the core's JSON, in base64url: unique enough within one trial. */
export function contentOf(value: unknown): Content {
  if (!isObject(value)) return { digest: digestOf(value), core: value, empty: null };
  const core: [string, unknown][] = [];
  const empty: [string, unknown][] = [];
  for (const key of Object.keys(value).toSorted()) (saysNothing(value[key]) ? empty : core).push([key, value[key]]);
  const said = Object.fromEntries(core);
  return { digest: digestOf(said), core: said, empty: empty.length > 0 ? Object.fromEntries(empty) : null };
}

export const whole = (core: unknown, empty: JsonObject | null | undefined): unknown => (empty && isObject(core) ? { ...core, ...empty } : core);

const saysNothing = (value: unknown): boolean => value === null || value === undefined || value === '' || (Array.isArray(value) && value.length === 0);

/** Returns the digest of a value's JSON. */
export const digestOf = (value: unknown): string => hash('sha256', value === undefined ? '' : stringifyExact(value), 'base64url').slice(0, DIGEST_LENGTH);
