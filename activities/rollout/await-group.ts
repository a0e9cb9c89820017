import { heartbeat, sleep } from '@temporalio/activity';
import { eq } from 'drizzle-orm';
import { groups } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';

/** Waits until a group has ended whose workflow outlived the one that started it. The activity's timeout bounds the wait. */
export const awaitGroup =
  (deps: Deps) =>
  async (input: { id: string }): Promise<void> => {
    for (;;) {
      const [group] = await deps.db.select({ endedAt: groups.endedAt }).from(groups).where(eq(groups.id, input.id));
      if (group?.endedAt) return;
      heartbeat();
      await sleep('1s');
    }
  };
