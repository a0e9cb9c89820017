import { afterEach } from 'vitest';
import { TokenEngine } from './token-engine.ts';

type EngineOptions = Partial<Pick<TokenEngine, 'mask' | 'parses'>>;

/** Returns a function that starts an engine and returns its URL. The engines stop after each test. */
export function useTokenEngines(): (given?: EngineOptions) => Promise<string> {
  const engines: TokenEngine[] = [];
  afterEach(async () => void (await Promise.all(engines.splice(0).map((engine) => engine.stop()))));
  return async (given = {}) => {
    const engine = Object.assign(await new TokenEngine().start(), given);
    engines.push(engine);
    return engine.url;
  };
}
