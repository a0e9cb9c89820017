import { isObject } from '../../core/json.ts';

const HIDDEN = '[hidden]';
/** The user and the password of an address. A password may have an `@`. */
const LOGIN = /(?<=\/\/)[^\s/?#]+(?=@)/g;
/** How the name of a credential ends. Numbers of tokens are none. */
const ENDS = '(?:keys?|token|passwords?|passwd|secrets?|credentials?|authorization)';
const NAME = new RegExp(`${ENDS}$`, 'i');
/** What stands after such a name within a text: `?token=…`, `API_KEY=…`, `--api-key …`. */
const NAMED = new RegExp(`(?<=${ENDS}=|-[\\w-]{0,40}${ENDS} {1,4})[^\\s&]+`, 'gi');

/**
 * Returns a run's settings without what may be a key for another service: the variables of its agents, users and passwords of addresses, and
 * texts whose name, or whose option of a command, says that they are a key, a token, a password or a secret.
 */
export function hideCredentials(value: unknown, name = ''): unknown {
  if (typeof value === 'string') return NAME.test(name) ? HIDDEN : value.replace(LOGIN, HIDDEN).replace(NAMED, HIDDEN);
  if (Array.isArray(value)) return value.map((each, i) => hideCredentials(each, optionBefore(value, i) ?? name));
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, each]) => [key, name === 'env' ? HIDDEN : hideCredentials(each, key)]),
  );
}

function optionBefore(words: readonly unknown[], i: number): string | null {
  const before = words[i - 1];
  return typeof before === 'string' && before.startsWith('-') ? before : null;
}
