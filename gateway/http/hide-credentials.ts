import { isObject } from '../../core/json.ts';

const HIDDEN = '[hidden]';
/** The user and the password of an address. */
const LOGIN = /(?<=\/\/)[^\s/@]+(?=@)/g;

/**
 * Returns a run's settings without what may be a key for another service: the variables of its agents, and users and passwords of addresses.
 * A person may have written one there.
 */
export function hideCredentials(value: unknown, name = ''): unknown {
  if (typeof value === 'string') return value.replace(LOGIN, HIDDEN);
  if (Array.isArray(value)) return value.map((each) => hideCredentials(each));
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, each]) => [key, name === 'env' ? HIDDEN : hideCredentials(each, key)]),
  );
}
