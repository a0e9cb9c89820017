import type { Context } from 'hono';
import type { GatewayDeps, GatewayEnv } from './deps.ts';
import type { Failure } from './failure.ts';
import type { Protocol } from './protocols/protocol.ts';

const MOST_CHARACTERS = 300;

/** Counts a request to a model's route that was refused before it became a call. Records it with its trial when its key proved one. */
export function noteRefusal({ counters, refusals }: GatewayDeps, c: Context<GatewayEnv>, failure: Failure, protocol: Protocol | null): void {
  const { status, code, message, item, headers } = failure;
  const isCall = 'x-trialgate-call' in headers;
  if (protocol === null || isCall || status < 400 || status >= 500 || code === 'agent_disconnected') return;
  counters.refused.add(code);
  const trial = c.get('trial');
  if (!trial) return;
  const { size, digest } = c.get('body') ?? { size: announced(c), digest: null };
  refusals.add(trial.id, {
    at: new Date().toISOString(),
    attempt: trial.attempt,
    status,
    code,
    request: `${c.req.method} ${protocol.path}`,
    item: item?.slice(0, MOST_CHARACTERS) ?? null,
    message: message.slice(0, MOST_CHARACTERS),
    size,
    digest: digest && inHex(digest),
  });
}

/** Returns the length of the body that the sender announced. */
function announced(c: Context): number | null {
  const length = Number(c.req.header('content-length') ?? NaN);
  return Number.isFinite(length) ? length : null;
}

const inHex = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
