import { and, eq, isNull } from 'drizzle-orm';
import { groups } from '../store/schema.ts';
import type { Deps } from './deps.ts';

export const endGroup = (deps: Deps) => async (input: { id: string }): Promise<void> => {
  await deps.db.update(groups).set({ endedAt: new Date() }).where(and(eq(groups.id, input.id), isNull(groups.endedAt)));
};
