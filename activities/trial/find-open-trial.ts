import { and, eq } from 'drizzle-orm';
import { TrialgateError } from '../../core/errors.ts';
import { groups, trials } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import { mayRun } from '../iteration/list-running-groups.ts';
import { nonRetryable } from '../temporal/non-retryable.ts';
import { planOf } from '../rollout/group-plan.ts';

/** Returns the group of a trial that runs, or that waits for a host and has no row yet. */
export const findOpenTrial =
  (deps: Pick<Deps, 'db'>) =>
  (input: { runId: string; trialId: string }): Promise<{ groupId: string; trialIndex: number }> =>
    nonRetryable(async () => {
      const { runId, trialId } = input;
      const [row] = await deps.db
        .select()
        .from(trials)
        .where(and(eq(trials.id, trialId), eq(trials.runId, runId)));
      if (row?.outcome) throw new TrialgateError('bad_input', `trial ${trialId} has ended: ${row.outcome}`);
      if (row?.groupId && row.trialIndex !== null) return { groupId: row.groupId, trialIndex: row.trialIndex };
      const waiting = row ? null : await findUnopened(deps, runId, trialId);
      if (waiting) return waiting;
      throw new TrialgateError(
        'bad_input',
        `run ${runId} has no trial ${trialId}: "npx trialgate show ${runId}" lists them`,
      );
    });

async function findUnopened(
  { db }: Pick<Deps, 'db'>,
  runId: string,
  trialId: string,
): Promise<{ groupId: string; trialIndex: number } | null> {
  const [, prefix, digits] = /^(.+)-(0|[1-9]\d*)$/.exec(trialId) ?? [];
  const trialIndex = Number(digits);
  const open = await db
    .select()
    .from(groups)
    .where(and(eq(groups.runId, runId), mayRun));
  const group = open.find((each) => planOf(each).trialPrefix === prefix && trialIndex < each.size);
  return group ? { groupId: group.id, trialIndex } : null;
}
