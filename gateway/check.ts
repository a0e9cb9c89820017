import type { z } from 'zod';
import { badFields } from './bad-fields.ts';

/** Parses a value from outside by its schema. Throws a 400 that names the first wrong field. */
export function check<S extends z.ZodType>(schema: S, value: unknown): z.output<S> {
  const checked = schema.safeParse(value);
  if (checked.success) return checked.data;
  throw badFields(checked.error);
}
