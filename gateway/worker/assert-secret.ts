import type { Database } from '../../store/database.ts';
import { requireSecret } from '../../store/queries/require-secret.ts';
import { isTransient } from '../../core/transient.ts';
import type { Isolate } from './isolate.ts';

/**
 * Checks the secret before an isolate answers its first request, because a Worker has no startup step. @throws TrialgateError
 * `missing_prerequisite`
 */
export async function assertSecret(db: Database, secret: string, isolate: Isolate): Promise<void> {
  if (isolate.isSecretKnown) return;
  try {
    await requireSecret(db, secret);
    isolate.isSecretKnown = true;
  } catch (error) {
    // Without a database no request is answered, and the next request checks again.
    if (!isTransient(error)) throw error;
  }
}
