import type { z } from 'zod';
import { Failure } from './failure.ts';

/** Parses a value from outside by its schema. Throws a 400 that names the first wrong field. */
export function check<S extends z.ZodType>(schema: S, value: unknown): z.output<S> {
  const checked = schema.safeParse(value);
  if (checked.success) return checked.data;
  throw badFields(checked.error);
}

type Issue = { readonly path: PropertyKey[]; readonly message: string };
type Found = Issue & { readonly expected: readonly string[] };

/** Builds a 400 that names the path of the first invalid field. When a value may have several forms, it takes the field from the form that the value fits best. */
function badFields({ issues }: z.ZodError): Failure {
  const [issue] = issues;
  const { path, message } = issue ? deepest(issue) : { path: [], message: 'is not valid' };
  const item = path.join('.') || 'body';
  return new Failure(400, 'invalid_request', `${item}: ${message}`, { retryable: false, item });
}

function deepest(issue: z.core.$ZodIssue): Found {
  const { path } = issue;
  const message = issue.message.replace(
    /^Invalid input: expected (.+), received undefined$/,
    'is missing: expected $1',
  );
  const own = { path, message, expected: issue.code === 'invalid_type' ? [issue.expected] : [] };
  if (issue.code !== 'invalid_union') return own;
  const tried = issue.errors.flatMap(([first]) => (first ? [deepest(first)] : []));
  const depth = Math.max(0, ...tried.map((each) => each.path.length));
  const best = tried.filter((each) => each.path.length === depth);
  const [first] = best;
  if (!first || (depth === 0 && message !== DEFAULT_UNION_MESSAGE)) return own;
  const expected = [...new Set(best.flatMap((each) => each.expected))];
  const text =
    best.length > 1 && expected.length > 1 ? `Invalid input: expected ${expected.join(' or ')}` : first.message;
  return { path: [...path, ...first.path], message: text, expected };
}

/** The message that zod gives a union without a message of its own. */
const DEFAULT_UNION_MESSAGE = 'Invalid input';
