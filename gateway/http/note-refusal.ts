import type { Context } from 'hono';
import { claimOf } from './auth.ts';
import type { GatewayDeps, GatewayEnv } from './deps.ts';
import type { Failure } from '../failure.ts';
import type { Protocol } from '../protocols/protocol.ts';

const MOST_CHARACTERS = 300;

/**
 * Counts a request that was refused before it became a call, for a model's route or below a trial's URL. Records it with its trial if its
 * key proved one.
 */
export function noteRefusal(
  deps: GatewayDeps,
  c: Context<GatewayEnv>,
  failure: Failure,
  protocol: Protocol | null,
): void {
  const { counters, refusals } = deps;
  const { status, code, message, item, headers } = failure;
  const isCall = 'x-trialgate-call' in headers;
  if (isCall || status < 400 || code === 'agent_disconnected') return;
  const trial = c.get('trial') ?? provenTrial(deps, c);
  if (protocol === null && !trial) return;
  counters.refused.add(code);
  if (!trial) return;
  const { size, digest } = c.get('body') ?? { size: announced(c), digest: null };
  refusals.add(trial, {
    at: new Date().toISOString(),
    attempt: trial.attempt,
    status,
    code,
    request: `${c.req.method} ${protocol?.path ?? c.req.path.replace(OF_TRIAL, '/v1/').slice(0, MOST_CHARACTERS)}`,
    item: item?.slice(0, MOST_CHARACTERS) ?? null,
    message: message.slice(0, MOST_CHARACTERS),
    size,
    digest: digest && inHex(digest),
  });
}

/** The part of a path that names the trial. */
const OF_TRIAL = /^\/(?:([^/]+)\/)?v1\//;

/** Returns the trial and attempt that the request's key proves, for a path without a route. */
function provenTrial(deps: GatewayDeps, c: Context<GatewayEnv>): GatewayEnv['Variables']['trial'] | null {
  const [ofTrial, named] = OF_TRIAL.exec(c.req.path) ?? [];
  if (ofTrial === undefined) return null;
  const { trialId, attempt } = claimOf(deps, named && unescaped(named), c.req.raw.headers);
  return attempt === null ? null : { id: trialId, attempt };
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Returns the announced length of the body. */
function announced(c: Context): number | null {
  const length = Number(c.req.header('content-length') ?? NaN);
  return Number.isFinite(length) ? length : null;
}

const inHex = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
