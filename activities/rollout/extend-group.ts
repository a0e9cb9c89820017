import { eq, sql } from 'drizzle-orm';
import { groups } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';

/** Moves a group's deadline to `until`, unless it is later already. */
export const extendGroup =
  (deps: Pick<Deps, 'db'>) =>
  async (input: { id: string; /** ISO 8601. */ until: string }): Promise<void> => {
    await deps.db
      .update(groups)
      .set({ deadlineAt: sql`greatest(${groups.deadlineAt}, ${input.until}::timestamptz)` })
      .where(eq(groups.id, input.id));
  };
