import { eq } from 'drizzle-orm';
import { trials } from '../../../store/schema.ts';
import { isTrialId } from '../../../core/ids.ts';
import type { GatewayDeps } from '../deps.ts';
import { withStoreRetry } from '../../with-store-retry.ts';

/** Names that cannot be trial ids here, because routes have them. */
const TAKEN = new Set(['batch_delete', 'export', 'runs', 'sessions', 'ui', 'v1']);
export const isTaken = (trialId: string): boolean => TAKEN.has(trialId);

const ROUTES = /^(?:(?:GET|POST|DELETE) \/sessions\/([^/]+)|POST \/sessions\/([^/]+)\/complete)$/;

/** True when the request comes as from verl-recipe PR 83's client: without a key, without a body, and not from a web page. */
export function isByUrl({ settings }: GatewayDeps, { headers }: Request): boolean {
  const isBare = !headers.has('transfer-encoding') && Number(headers.get('content-length') ?? 0) === 0;
  return settings.compat === 'verl' && isBare && !headers.has('authorization') && !headers.has('origin');
}

/**
 * True when the session's URL alone opens this route. It never opens a run's session, nor routes that list, sample or reward. Without an
 * admin key those are open anyway.
 */
export async function opensByUrl(deps: GatewayDeps, request: Request): Promise<boolean> {
  if (!isByUrl(deps, request) || deps.adminKey === null) return false;
  const [, session, completed] = ROUTES.exec(`${request.method} ${new URL(request.url).pathname}`) ?? [];
  const trialId = decoded(session ?? completed);
  if (trialId === undefined || !isTrialId(trialId) || isTaken(trialId)) return false;
  // A trial that was deleted still belongs to its run.
  const [trial] = await withStoreRetry(deps, () =>
    deps.db.select({ runId: trials.runId }).from(trials).where(eq(trials.id, trialId)),
  );
  return !trial || trial.runId === null;
}

/** Returns undefined when the text is not a valid percent-encoding. */
function decoded(segment: string | undefined): string | undefined {
  try {
    return segment && decodeURIComponent(segment);
  } catch {
    return undefined;
  }
}
