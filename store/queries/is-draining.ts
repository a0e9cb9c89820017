import { sql } from 'drizzle-orm';
import { replicas } from '../schema.ts';

/** True for a replica that gets no new calls: it was found draining, or a person drains it. A run does not count it and does not publish to it. */
export const isDraining = sql<boolean>`(${replicas.draining} or ${replicas.drainedByHand})`;
