import { z } from 'zod';
import { isObject, type JsonObject } from '../json.ts';

/** A block, item or tool of a type that cannot be shown to the model. It is recorded as it came and left out of the prompt. */
export const unserved = z.object({ type: z.literal('unserved'), value: z.record(z.string(), z.unknown()) });
export type Unserved = z.output<typeof unserved>;

/**
 * Converts a value that `isServed` rejects to an unserved one, whatever its fields. Checks all other values by `schema`, including those
 * without a type.
 */
export const servedOr = <T extends z.ZodType>(isServed: (value: JsonObject) => boolean, schema: T) =>
  z.preprocess(
    (value) =>
      isObject(value) && typeof value.type === 'string' && !isServed(value) ? { type: 'unserved', value } : value,
    schema,
  );

/** An unserved value and its place in the request. */
export type LeftOut = { at: string; value: JsonObject };

/** Returns the unserved values of a list. `inside` finds those within a served value. */
export function leftOutOf<T>(
  list: readonly T[],
  at: string,
  inside: (value: T, at: string) => LeftOut[] = () => [],
): LeftOut[] {
  return list.flatMap((value, i) => {
    const here = `${at}.${i}`;
    const { data } = unserved.safeParse(value);
    return data ? [{ at: here, value: data.value }] : inside(value, here);
  });
}
