import { and, eq } from 'drizzle-orm';
import { iterations } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import { ofTake, type TakeKey } from '../../store/queries/takes.ts';

/** Ends an iteration after its version was trained and published. */
export const closeTake =
  (deps: Deps) =>
  async (input: TakeKey & { seconds: Record<string, number> }): Promise<void> => {
    await deps.db
      .update(iterations)
      .set({ status: 'done', seconds: input.seconds, endedAt: new Date() })
      .where(and(ofTake(iterations, input), eq(iterations.status, 'open')));
  };
