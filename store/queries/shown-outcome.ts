import { sql, type SQL } from 'drizzle-orm';
import { attempts, trials, type Outcome } from '../schema.ts';

/**
 * The outcome of a trial as it is shown. One that its run ended or was blocked under has none, so that a resumed run tries it again: then it
 * is that of its last attempt, as `trialgate show` counts it.
 */
export const shownOutcome = (): SQL<Outcome | null> => sql<Outcome | null>`
  coalesce(${trials.outcome}, (
    select tried.outcome from ${attempts} tried where tried.trial_id = ${sql.identifier('trials')}.id order by tried.attempt desc limit 1))`;
