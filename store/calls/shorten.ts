import { z } from 'zod';
import { sharedLength } from '../../core/token-ids.ts';
import type { Content } from './content.ts';
import { itemKey, type Outline } from './outline.ts';

/** A committed call of the same attempt. A later call is stored as its difference from it (invariant 9). */
export type Base = {
  callId: string;
  /** The token ids of its prompt and completion. */
  tokenIds: Int32Array;
  /** The keys of its lists' items. */
  lists: Record<string, readonly string[]>;
  /** A text completion's prompt and reply. */
  text: string;
};

/** A stored content: `is` has the content itself, `as` the digest of one that an earlier call of the attempt stored, `and` its empty fields. */
const stored = z.object({
  is: z.unknown().optional(),
  as: z.string().optional(),
  and: z.record(z.string(), z.unknown()).optional(),
});
export type StoredContent = z.output<typeof stored>;

/** A request as it is stored. Of each list and of the prompt it has the length of the part that the base shares, and the rest. */
export const shortRequest = z.object({
  fields: stored,
  lists: z.record(z.string(), z.tuple([z.number(), z.array(stored)])),
  prompt: z.tuple([z.number(), z.string()]).optional(),
});
export type ShortRequest = z.output<typeof shortRequest>;

/** The digests of the contents that earlier calls of the attempt stored. */
export type KnownContents = Pick<ReadonlySet<string>, 'has'>;

export function shorten(outline: Outline, base: Base | null, known: KnownContents): ShortRequest {
  const brought = new Set<string>();
  const store = ({ digest, core, empty }: Content): StoredContent => {
    const content = known.has(digest) || brought.has(digest) ? { as: digest } : { is: core };
    brought.add(digest);
    return empty ? { ...content, and: empty } : content;
  };
  const { fields, prompt } = outline;
  const lists: ShortRequest['lists'] = {};
  for (const [name, items] of Object.entries(outline.lists)) {
    const before = base?.lists[name];
    const shared = before ? sharedLength(items.map(itemKey), before) : 0;
    lists[name] = [shared, items.slice(shared).map(store)];
  }
  const short = { fields: store(fields), lists };
  if (prompt === null) return short;
  const shared = base ? sharedLength(prompt, base.text) : 0;
  return { ...short, prompt: [shared, prompt.slice(shared)] };
}
