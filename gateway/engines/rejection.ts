import { lacksToolParser } from '../../core/restart-engine.ts';
import { Failure } from '../failure.ts';
import { isObject, parseObject } from '../json.ts';
import type { EngineReply } from './connection.ts';
import { EngineFailed } from './engine-failed.ts';
import type { Exchange } from './exchange.ts';
import { isAdapter } from './lease.ts';

/** Statuses of a dead engine core, of a full queue and of proxies for either. */
const ITS_OWN = new Set([500, 502, 503, 504]);

/** The status for a request field that the engine knows but does not support. */
const NOT_IMPLEMENTED = 501;

/** Returns the failure for an engine's error status. An error that the request caused (4xx) reaches the agent in the engine's words. */
export async function rejection(exchange: Exchange, reply: EngineReply): Promise<Failure> {
  const { status } = reply;
  const text = await exchange.readText(reply.body);
  const body = parseObject(text);
  const reported = isObject(body?.error) ? body.error : null;
  const message = typeof reported?.message === 'string' ? reported.message : text.slice(0, 500);
  // A wrong key or route of the engine is the deployment's problem, and the agent must not see it.
  if (ITS_OWN.has(status))
    return new EngineFailed(`the engine answered ${status}: ${message}`, { isAnswer: status === 500 });
  // Its own words may have a part of the key.
  if (status === 401 || status === 403)
    return new Failure(
      502,
      'engine_error',
      `the engine answered ${status}: it wants a key, or refuses the gateway's (engine_keys)`,
      { fault: 'engine' },
    );
  if (status >= 500 || status < 400) {
    return new Failure(502, 'engine_error', `the engine answered ${status}: ${message}`, {
      fault: status === NOT_IMPLEMENTED ? 'request' : 'engine',
    });
  }
  if (status === 404) {
    exchange.lease.replica.forget();
    // The adapter was just unloaded, or its engine restarted. The next lease reads which models are loaded.
    if (isAdapter(exchange.lease)) return new EngineFailed(`the engine answered 404: ${message}`, { isAnswer: false });
  }
  if (status === 400 && exceedsContext(reported, message)) {
    const error = { ...reported, message, code: 'context_length_exceeded' };
    return new Failure(status, 'context_length_exceeded', message, { body: { ...body, error }, retryable: false });
  }
  const what = typeof reported?.type === 'string' ? `${reported.type}: ${message}` : message;
  // The agent may offer tools: how its engine was started is the deployment's problem.
  const fault = lacksToolParser(message) ? 'engine' : undefined;
  return new Failure(status, `engine_${status}`, what, { fault, ...(body && { body }) });
}

function exceedsContext(reported: Record<string, unknown> | null, message: string): boolean {
  if (reported?.code === 'context_length_exceeded' || reported?.param === 'input_tokens') return true;
  return (
    /maximum (context|model) length|context (length|window) (is|of|exceeded)/i.test(message) &&
    reported?.param !== 'max_tokens'
  );
}
