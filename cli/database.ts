import { TrialgateError } from '../core/errors.ts';
import { migrate } from '../store/queries/migrate.ts';

/** Brings the tables up to date. @throws TrialgateError when the database cannot be used; the message has its host, never its password. */
export async function requireDatabase(url: string): Promise<void> {
  try {
    await migrate(url);
  } catch (cause) {
    const { host, pathname } = new URL(url);
    const code = cause instanceof TrialgateError ? cause.code : 'store_unavailable';
    throw new TrialgateError(code, `the database ${pathname.slice(1)} at ${host} cannot be used: ${reasonOf(cause)}`, {
      cause,
    });
  }
}

/** Returns the innermost reason. Drivers wrap it, and a refused connection is an AggregateError without a message. */
function reasonOf(cause: unknown): string {
  if (cause instanceof AggregateError) return cause.errors.map(reasonOf).join(', ');
  if (!(cause instanceof Error)) return String(cause);
  return cause.cause === undefined ? cause.message : reasonOf(cause.cause);
}
