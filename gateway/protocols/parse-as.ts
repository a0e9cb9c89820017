import type { z } from 'zod';
import { check } from '../check.ts';
import { parseModelRequest, type JsonObject } from '../json.ts';

/** Returns a request's body as it came and as its protocol reads it. Throws a 400 that names the first wrong field. */
export function parseAs<T>(shape: z.ZodType<T>, bytes: Uint8Array): { asked: JsonObject; checked: T } {
  const asked = parseModelRequest(bytes);
  return { asked, checked: check(shape, asked) };
}
