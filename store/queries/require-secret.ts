import type { Database } from '../database.ts';
import { TrialgateError } from '../../core/errors.ts';
import { fingerprintOf, sameText } from '../../core/keys.ts';
import { deployment } from '../schema.ts';

/**
 * Checks that `secret` is the one that this database's keys are derived from; the first caller decides it. With another secret, a gateway
 * would refuse the keys of open trials and give out keys that the deployment's other gateways refuse.
 * @throws TrialgateError `missing_prerequisite`
 */
export async function requireSecret(db: Database, secret: string): Promise<void> {
  const secretFingerprint = fingerprintOf(secret);
  await db.insert(deployment).values({ id: 1, secretFingerprint }).onConflictDoNothing();
  const [row] = await db.select().from(deployment);
  if (row && sameText(row.secretFingerprint, secretFingerprint)) return;
  throw new TrialgateError(
    'missing_prerequisite',
    'this database belongs to a deployment with another secret, so keys that were given out would not open their trials: start with the secret of that deployment ' +
      '(--secret, TRIALGATE_SECRET, or `secret` in its secrets.json), or use another database. To change the secret for good, stop everything and run ' +
      '`delete from deployment` in this database: open trials then need new keys',
  );
}
