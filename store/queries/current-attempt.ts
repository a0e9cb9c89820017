import { and, eq } from 'drizzle-orm';
import { attempts, trials } from '../schema.ts';

/** Joins a trial with its current attempt. */
export const isCurrentAttempt = and(eq(attempts.trialId, trials.id), eq(attempts.attempt, trials.attempt));
