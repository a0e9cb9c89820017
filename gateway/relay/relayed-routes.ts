import { engineIn, UNNAMED } from '../engines/all.ts';
import type { Engine } from '../engines/engine.ts';
import { FETCH_CHECKPOINT } from './checkpoints.ts';

/**
 * True for a request that the gateway or the trainer sends to the engine at this URL, or to the worker itself. If the URL names no kind, one
 * that may be sent to any of the unnamed kinds passes. A path that is written in another way is another path.
 */
export function isPassedOn(engine: string, method: 'GET' | 'POST', pathAndQuery: string, body: string): boolean {
  const path = routeOf(pathAndQuery);
  return pathAndQuery === FETCH_CHECKPOINT
    ? method === 'POST'
    : kindsOf(engine).some((kind) => kind.isRelayed(method, path, body));
}

/** Returns the keys under which a request for this route names the folder of weights to load; null for a route that loads none. */
export function weightsFolderIn(engine: string, pathAndQuery: string): readonly string[] | null {
  const path = routeOf(pathAndQuery);
  for (const kind of kindsOf(engine)) {
    const keys = kind.weightsFolderIn(path);
    if (keys) return keys;
  }
  return null;
}

const kindsOf = (engine: string): readonly Engine[] => {
  const named = engineIn(engine);
  return named ? [named] : UNNAMED;
};

const routeOf = (pathAndQuery: string): string => pathAndQuery.replace(/\?.*$/s, '');
