import type { Database } from '../../store/database.ts';
import { requireSecret } from '../../store/queries/require-secret.ts';
import { isTransient } from '../../store/transient.ts';
import type { Isolate } from './isolate.ts';

/**
 * A Worker has no startup step, so an isolate checks its secret before it answers its first request.
 * @throws TrialgateError `missing_prerequisite`
 */
export async function assertSecret(db: Database, secret: string, isolate: Isolate): Promise<void> {
  if (isolate.isSecretKnown) return;
  try {
    await requireSecret(db, secret);
    isolate.isSecretKnown = true;
  } catch (error) {
    // Without a database, no request is answered from it, and the next request checks again.
    if (!isTransient(error)) throw error;
  }
}
