import { z } from 'zod';
import { isObject, type JsonObject } from '../json.ts';

/** A block, item or tool of a type that the model cannot be shown. It is recorded as it came and left out of the prompt. */
export const unserved = z.object({ type: z.literal('unserved'), value: z.record(z.string(), z.unknown()) });
export type Unserved = z.output<typeof unserved>;

/** Takes what `isServed` denies as unserved, whatever its fields are, and checks the rest by `schema`. A value without a type is checked. */
export const servedOr = <T extends z.ZodType>(isServed: (value: JsonObject) => boolean, schema: T) =>
  z.preprocess((value) => (isObject(value) && typeof value.type === 'string' && !isServed(value) ? { type: 'unserved', value } : value), schema);

/** An unserved value, and where in the request it stood. */
export type LeftOut = { at: string; value: JsonObject };

/** The unserved values of a list, where `inside` finds those within one of its served values. */
export function leftOutOf<T>(list: readonly T[], at: string, inside: (value: T, at: string) => LeftOut[] = () => []): LeftOut[] {
  return list.flatMap((value, i) => {
    const here = `${at}.${i}`;
    const { data } = unserved.safeParse(value);
    return data ? [{ at: here, value: data.value }] : inside(value, here);
  });
}
