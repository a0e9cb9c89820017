import { sql, type SQL } from 'drizzle-orm';
import { groups } from '../schema.ts';

/** True for a group of an evaluation that the run file asks for (`{run}/eval@{version}/{ordinal}`), and not for one on demand. */
export const isOwnEvaluation: SQL<boolean> = sql`${groups.id} ~ '/eval@[0-9]+/[0-9]+$'`;
