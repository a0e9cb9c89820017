import type { z } from 'zod';
import { badFields } from '../bad-fields.ts';
import { parseModelRequest, type JsonObject } from '../json.ts';

/** A request's body as it came, and as its protocol has it. Throws a 400 that names the first field at fault. */
export function parseAs<T>(shape: z.ZodType<T>, bytes: Uint8Array): { asked: JsonObject; checked: T } {
  const asked = parseModelRequest(bytes);
  const { success, data, error } = shape.safeParse(asked);
  if (success) return { asked, checked: data };
  throw badFields(error);
}
