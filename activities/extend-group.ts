import { eq } from 'drizzle-orm';
import { groups } from '../store/schema.ts';
import type { Deps } from './deps.ts';

/** Writes down that a group may take until then. */
export const extendGroup = (deps: Pick<Deps, 'db'>) => async (input: { id: string; /** ISO 8601. */ until: string }): Promise<void> => {
  await deps.db.update(groups).set({ deadlineAt: new Date(input.until) }).where(eq(groups.id, input.id));
};
