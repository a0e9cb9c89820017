import { sql, type SQL } from 'drizzle-orm';
import { trials } from '../schema.ts';

/**
 * The weighted reward of a trial in SQL, as `core/weighted-reward.ts` computes it. Null without rewards. Most trials have the one reward
 * `reward`, for which PostgreSQL need not take the object apart: that is ten times slower.
 */
export const weightedRewardOf = (weights: Record<string, number>): SQL<number | null> => sql<number | null>`
  case
    when ${trials.rewards} is null then null
    when ${trials.rewards} ? 'reward' and ${trials.rewards} - 'reward' = '{}'::jsonb
      then (${trials.rewards} ->> 'reward')::float8 * ${weights['reward'] ?? 1}::float8
    else coalesce(
      (select sum(value::float8 * coalesce((${JSON.stringify(weights)}::jsonb ->> key)::float8, 1)) from jsonb_each_text(${trials.rewards})), 0)
  end`;
