import type { EngineReply } from '../engines/connection.ts';
import { isAdapter } from '../engines/pool.ts';
import { Failure } from '../failure.ts';
import type { Call } from './call.ts';
import { isObject, parseObject } from '../json.ts';

/** A failure of the engine. Another replica may take the call while the agent has seen nothing of the reply. */
export class EngineFailed extends Failure {
  /** True when the engine itself answered this request with an error, which the request may have caused. */
  readonly isAnswer: boolean;
  constructor(message: string, { isAnswer }: { isAnswer: boolean }) {
    super(502, 'engine_error', message);
    this.isAnswer = isAnswer;
  }
}

/** Statuses of a dead engine core, of a full queue (vLLM: "try a different instance") and of proxies for either. */
const ITS_OWN = new Set([500, 502, 503, 504]);

/** The status of vLLM for a request field that it knows but does not support. */
const NOT_IMPLEMENTED = 501;

/** Returns the failure for an engine's error status. An error that the request caused (4xx) reaches the agent in the engine's words. */
export async function rejection(call: Call, reply: EngineReply): Promise<Failure> {
  const { status } = reply;
  const text = await call.readText(reply.body);
  const body = parseObject(text);
  const reported = isObject(body?.error) ? body.error : null;
  const message = typeof reported?.message === 'string' ? reported.message : text.slice(0, 500);
  // A wrong key or route of the engine is the deployment's problem, and the agent must not see it.
  if (ITS_OWN.has(status))
    return new EngineFailed(`the engine answered ${status}: ${message}`, { isAnswer: status === 500 });
  if (status >= 500 || status === 401 || status === 403 || status < 400) {
    return new Failure(502, 'engine_error', `the engine answered ${status}: ${message}`, {
      fault: status === NOT_IMPLEMENTED ? 'request' : 'engine',
    });
  }
  if (status === 404) {
    call.lease?.replica.forget();
    // The adapter was just unloaded, or its engine restarted. The next lease reads which models are loaded.
    if (call.lease && isAdapter(call.lease))
      return new EngineFailed(`the engine answered 404: ${message}`, { isAnswer: false });
  }
  if (status === 400 && exceedsContext(reported, message)) {
    const error = { ...reported, message, code: 'context_length_exceeded' };
    return new Failure(status, 'context_length_exceeded', message, { body: { ...body, error }, retryable: false });
  }
  const what = typeof reported?.type === 'string' ? `${reported.type}: ${message}` : message;
  return new Failure(status, `engine_${status}`, what, body ? { body } : {});
}

function exceedsContext(reported: Record<string, unknown> | null, message: string): boolean {
  if (reported?.code === 'context_length_exceeded' || reported?.param === 'input_tokens') return true;
  return (
    /maximum (context|model) length|context (length|window) (is|of|exceeded)/i.test(message) &&
    reported?.param !== 'max_tokens'
  );
}

export const badReply = (what: string) => new Failure(502, 'bad_engine_reply', `the engine's reply ${what}`);
