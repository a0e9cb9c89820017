import { engineIn, UNNAMED } from '../engines/all.ts';

/**
 * True for a request that the gateway or the trainer sends to the engine at this URL. If the URL names no kind, one that may be sent to any
 * of the unnamed kinds passes. A path that is written in another way is another path.
 */
export function isPassedOn(engine: string, method: 'GET' | 'POST', pathAndQuery: string, body: string): boolean {
  const named = engineIn(engine);
  const path = pathAndQuery.replace(/\?.*$/s, '');
  return (named ? [named] : UNNAMED).some((kind) => kind.isRelayed(method, path, body));
}
