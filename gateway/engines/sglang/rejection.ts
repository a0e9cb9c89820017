import { Failure } from '../../failure.ts';
import { isObject, parseObject, type JsonObject } from '../../json.ts';
import type { EngineReply } from '../connection.ts';
import { contextExceeded, EngineFailed } from '../engine-failed.ts';
import type { Exchange } from '../exchange.ts';
import { isAdapter } from '../lease.ts';

/** The words with which it refuses a request for an adapter that it does not have. */
const NO_ADAPTER = /LoRA adapter/;

/** Returns what the agent is told of a reply with another status than 200. */
export async function refused(exchange: Exchange, reply: EngineReply): Promise<Failure> {
  const text = await exchange.readText(reply.body);
  const message = messageIn(parseObject(text)) ?? text.slice(0, 500);
  if (reply.status === 400 && isAdapter(exchange.lease) && NO_ADAPTER.test(message)) {
    // Its engine restarted without the adapter. The next lease reads which ones are loaded.
    exchange.lease.replica.forget();
    return new EngineFailed(`the engine answered 400: ${message}`, { isAnswer: false });
  }
  return rejection(reply.status, message);
}

/** Reads the message of an error, which is a text, has one, or is one itself. */
export function messageIn(body: JsonObject | null): string | null {
  const found = isObject(body?.error) ? body.error.message : (body?.error ?? body?.message);
  return typeof found === 'string' ? found : null;
}

/** Returns the failure for an error's status. One that the request caused reaches the agent in the engine's words. */
export function rejection(status: number, message: string): Failure {
  const what = `the engine answered ${status}: ${message}`;
  // A full queue, or a scheduler that is gone: another replica may answer.
  if (status >= 500) return new EngineFailed(what, { isAnswer: status === 500 });
  // A wrong key or route of the engine is the deployment's problem, and the agent must not see it.
  if (status === 401 || status === 403 || status === 404 || status === 405 || status < 400)
    return new Failure(502, 'engine_error', what, { fault: 'engine' });
  return exceedsContext(message) ? contextExceeded(message) : new Failure(status, `engine_${status}`, message);
}

const exceedsContext = (message: string): boolean => /context length|exceeds the maximum allowed length/i.test(message);

/** Returns why a reply that was aborted failed. */
export function aborted({ message, status_code: status }: JsonObject): Failure {
  const why = typeof message === 'string' ? message : 'without a reason';
  if (typeof status === 'number') return rejection(status, why);
  return new EngineFailed(`the engine aborted the request: ${why}`, { isAnswer: false });
}
