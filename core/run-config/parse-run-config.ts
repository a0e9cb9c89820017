import { z } from 'zod';
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
  const faults = parsed.error.issues.map((issue) => `  ${describe(issue, raw)}`);
  throw new TrialgateError('bad_input', `${source} is not valid:\n${faults.join('\n')}`);
}

function describe(issue: z.core.$ZodIssue, raw: unknown): string {
  const field = issue.path.join('.') || '(the whole file)';
  if (issue.code === 'unrecognized_keys') {
    const prefix = issue.path.length ? `${field}.` : '';
    return `${issue.keys.map((key) => prefix + key).join(', ')}: unknown setting`;
  }
  const found = issue.path.reduce<unknown>(
    (value, key) => (value !== null && typeof value === 'object' ? Reflect.get(value, key) : undefined),
    raw,
  );
  return `${field}: ${issue.message} (found ${found === undefined ? 'nothing' : JSON.stringify(found)})`;
}
