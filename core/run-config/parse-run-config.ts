import { describeIssues } from '../describe-issues.ts';
import { TrialgateError } from '../errors.ts';
import { isStorable } from '../json.ts';
import { runConfig, type RunConfig } from './run-config.ts';

/**
 * Parses a run file.
 * @throws TrialgateError `bad_input` with a line for each fault: the field, what was expected, what was found
 */
export function parseRunConfig(raw: unknown, source = 'run file'): RunConfig {
  const parsed = runConfig.safeParse(raw);
  if (parsed.success && isStorable(parsed.data)) return parsed.data;
  if (parsed.success)
    throw new TrialgateError(
      'bad_input',
      `${source} is not valid:\n  a text has the character NUL or half a surrogate pair, which cannot be stored: remove it`,
    );
  const faults = describeIssues(parsed.error, runConfig).map(({ path, message, isUnknownKey }) =>
    isUnknownKey ? `  ${path}: ${message}` : `  ${path || '(the whole file)'}: ${message} (found ${found(raw, path)})`,
  );
  throw new TrialgateError('bad_input', `${source} is not valid:\n${faults.join('\n')}`);
}

/** Returns what a file has at this path. */
function found(raw: unknown, path: string): string {
  const value = path
    .split('.')
    .filter(Boolean)
    .reduce<unknown>(
      (outer, key) => (outer !== null && typeof outer === 'object' ? Reflect.get(outer, key) : undefined),
      raw,
    );
  return value === undefined ? 'nothing' : JSON.stringify(value);
}
