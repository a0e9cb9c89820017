import type { Database } from '../../store/database.ts';
import { readConstrainedWarnings } from './constrained-calls.ts';
import { readInfraWarnings } from './infra-errors.ts';
import { readSlowEngineWarnings } from './slow-engines.ts';

/** Returns the warnings of all runs under way. Warnings that cannot be read, for example in time, are named in their place. */
export async function readWarnings(db: Database): Promise<string[]> {
  const infrastructure = readInfraWarnings(db).catch(notRead('on infrastructure errors'));
  const constrained = readConstrainedWarnings(db).catch(notRead('on calls that are not trained'));
  const slow = readSlowEngineWarnings(db).catch(notRead('on slow engines'));
  return (await Promise.all([slow, infrastructure, constrained])).flat();
}

const notRead =
  (about: string) =>
  (error: unknown): string[] => [
    `the warnings ${about} could not be read: ${reasonOf(error)}; "npx trialgate show RUN" waits longer for them`,
  ];

/** Returns the database's own message. drizzle puts the whole query before it. */
export function reasonOf(error: unknown): string {
  const { cause } = error instanceof Error ? error : {};
  return cause instanceof Error ? cause.message : String(error);
}
