import { concat } from '../../core/token-ids.ts';

type Row = {
  id: string;
  baseId: string | null;
  sharedIds: number;
  promptTokenIds: Int32Array | null;
  completionTokenIds: Int32Array | null;
};

/**
 * Restores the whole prompts of an attempt's calls, which are given in the order of their commits. With `known`, the rows are only the
 * calls that build on it.
 */
export function restorePrompts(
  rows: readonly Row[],
  known: { callId: string; tokenIds: Int32Array } | null = null,
): (Int32Array | null)[] {
  const earlier = new Map<string, Int32Array>(known ? [[known.callId, known.tokenIds]] : []);
  return rows.map(({ id, baseId, sharedIds, promptTokenIds: rest, completionTokenIds }) => {
    const base = (baseId === null ? undefined : earlier.get(baseId)) ?? new Int32Array();
    if (rest && base.length < sharedIds)
      throw new Error(`call ${id} shares ${sharedIds} ids with call ${baseId}, which has only ${base.length}`);
    const prompt = rest && concat(base.subarray(0, sharedIds), rest);
    if (prompt) earlier.set(id, concat(prompt, completionTokenIds ?? []));
    return prompt;
  });
}
