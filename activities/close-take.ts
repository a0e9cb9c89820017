import { and, eq } from 'drizzle-orm';
import { iterations } from '../store/schema.ts';
import type { Deps } from './deps.ts';

/** Ends an iteration: its version is trained and published. */
export const closeTake =
  (deps: Deps) =>
  async (input: { runId: string; iteration: number; take: number; seconds: Record<string, number> }): Promise<void> => {
    const { runId, iteration, take, seconds } = input;
    await deps.db
      .update(iterations)
      .set({ status: 'done', seconds, endedAt: new Date() })
      .where(
        and(eq(iterations.runId, runId), eq(iterations.iteration, iteration), eq(iterations.take, take), eq(iterations.status, 'open')),
      );
  };
