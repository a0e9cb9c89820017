import type { z } from 'zod';
import { badFields } from './bad-fields.ts';

/** What came from outside, as its schema says it is; a 400 that names the first field that is not so. */
export function check<S extends z.ZodType>(schema: S, value: unknown): z.output<S> {
  const checked = schema.safeParse(value);
  if (checked.success) return checked.data;
  throw badFields(checked.error);
}
