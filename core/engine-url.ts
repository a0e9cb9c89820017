/** The form of a relay worker's id, which is part of URLs. */
export const RELAY_WORKER = /^[A-Za-z0-9._-]{1,64}$/;

/** In a deployment's list of engines this stands for all engines behind relay workers, and lets them dial in. */
export const RELAY = 'relay';

/** True for an engine behind a relay worker: `relay:WORKER`. */
export const isRelayed = (url: string): boolean => engineAt(url).address.startsWith('relay:');

/** Returns the id of the worker before such an engine. */
export const relayWorkerOf = (url: string): string => engineAt(url).address.slice('relay:'.length);

/** Returns the gateway's path to the engine behind a relay worker. */
export const relayPath = (worker: string): string => `/relay/workers/${worker}`;

/**
 * Returns the kind of an engine, which its URL names by a word before the address (`openai+https://host:port/api/v1`), null for vLLM and SGLang;
 * and the address at which it listens: `http://host:port`, `unix:/path.sock` or `relay:WORKER`. `gateway/engines/url-forms.ts` knows the kinds.
 */
export function engineAt(url: string): { kind: string | null; address: string } {
  const [, kind, address] = /^([a-z]+)\+(.*)$/.exec(url) ?? [];
  return { kind: kind ?? null, address: address ?? url };
}

/** The place where an engine listens. `base` stands before its routes in place of `/v1`. */
export type Listener = { socketPath: string | undefined; origin: string; base: string };

export function listenerOf(url: string): Listener {
  const { kind, address } = engineAt(url);
  if (address.startsWith('unix:'))
    return { socketPath: address.slice('unix:'.length), origin: 'http://engine', base: '/v1' };
  const { origin, pathname } = new URL(address);
  const path = pathname.replace(/\/+$/, '');
  return { socketPath: undefined, origin, base: kind === null || !path.startsWith('/') ? '/v1' : path };
}

/** Returns the path of one of an engine's routes below its base path. */
export const pathBelow = (base: string, route: string): string => route.replace(/^\/v1(?=\/)/, base);

/** True for an engine that a run can use, because calls to engines of its kind can be trained on. */
export const isForRuns = (url: string): boolean => engineAt(url).kind === null;

/** The reason for which a run refuses an engine of another kind. */
export const NOT_IN_RUNS =
  'is no engine for a run: servers of this kind return no token ids and take no weights, so nothing can be trained there. Calls of trials outside any run are answered and recorded, and `npx trialgate evaluate FILE --engine URL` evaluates tasks there. To train, name the URL of a vLLM or an SGLang';

/** The reason for which a run file that trains nothing must not name engines of both kinds. */
export const MIXED_ENGINES =
  'takes no weights, and another engine of this list does: name only servers that take none, whose own model is then evaluated, or none of them';
