import type { EngineReply } from '../engines/connection.ts';
import { isAdapter } from '../engines/pool.ts';
import { Failure } from '../failure.ts';
import type { Call } from './call.ts';
import { isObject, parseObject } from '../json.ts';

/** An engine's failure. Another replica may take the call while the agent has seen nothing of the reply. */
export class EngineFailed extends Failure {
  /** The engine itself answered this request with an error. The request may be the cause. */
  readonly isAnswer: boolean;
  constructor(message: string, { isAnswer }: { isAnswer: boolean }) {
    super(502, 'engine_error', message);
    this.isAnswer = isAnswer;
  }
}

/** A dead engine core; a queue that is full, in vLLM's own words "try a different instance"; what a proxy says of either. */
const ITS_OWN = new Set([500, 502, 503, 504]);

/** The status that vLLM returns for a request field that it knows but does not serve. */
const NOT_IMPLEMENTED = 501;

/** An engine's error status. What the request caused (4xx) reaches the agent as the engine put it. */
export async function rejection(call: Call, reply: EngineReply): Promise<Failure> {
  const { status } = reply;
  const text = await call.readText(reply.body);
  const body = parseObject(text);
  const said = isObject(body?.error) ? body.error : null;
  const message = typeof said?.message === 'string' ? said.message : text.slice(0, 500);
  // The engine's own key or route is this deployment's business, never the agent's.
  if (ITS_OWN.has(status)) return new EngineFailed(`the engine answered ${status}: ${message}`, { isAnswer: status === 500 });
  if (status >= 500 || status === 401 || status === 403 || status < 400) {
    return new Failure(502, 'engine_error', `the engine answered ${status}: ${message}`, { fault: status === NOT_IMPLEMENTED ? 'request' : 'engine' });
  }
  if (status === 404) {
    call.lease?.replica.forget();
    // An adapter that was just unloaded, or whose engine has restarted: the next lease finds what there is.
    if (call.lease && isAdapter(call.lease)) return new EngineFailed(`the engine answered 404: ${message}`, { isAnswer: false });
  }
  if (status === 400 && exceedsContext(said, message)) {
    const error = { ...said, message, code: 'context_length_exceeded' };
    return new Failure(status, 'context_length_exceeded', message, { body: { ...body, error }, retryable: false });
  }
  const what = typeof said?.type === 'string' ? `${said.type}: ${message}` : message;
  return new Failure(status, `engine_${status}`, what, body ? { body } : {});
}

function exceedsContext(said: Record<string, unknown> | null, message: string): boolean {
  if (said?.code === 'context_length_exceeded' || said?.param === 'input_tokens') return true;
  return /maximum (context|model) length|context (length|window) (is|of|exceeded)/i.test(message) && said?.param !== 'max_tokens';
}

export const badReply = (what: string) => new Failure(502, 'bad_engine_reply', `the engine's reply ${what}`);
