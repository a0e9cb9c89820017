import type { z } from 'zod';
import { describeIssues } from './describe-issues.ts';
import { TrialgateError } from './errors.ts';

/**
 * Returns the content of a file as its schema makes it.
 * @throws TrialgateError `bad_input` that names the file and each wrong field
 */
export function validateFile<S extends z.ZodType>(schema: S, content: unknown, file: string): z.output<S> {
  const parsed = schema.safeParse(content);
  if (parsed.success) return parsed.data;
  const faults = describeIssues(parsed.error, schema).map(
    ({ path, message }) => `${path || '(top level)'}: ${message}`,
  );
  throw new TrialgateError('bad_input', `${file}: ${faults.join('; ')}`);
}
