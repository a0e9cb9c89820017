import type { TokenEngine } from '../fakes/token-engine.ts';
import { until } from '../harness/until.ts';

/**
 * Makes a chat call and hangs up once the engine has it, which never answers. Returns a probe that is true once the engine's request was
 * closed.
 */
export async function hangUpAtEngine(
  engine: TokenEngine,
  chat: (signal: AbortSignal) => Promise<Response>,
): Promise<() => boolean> {
  let [isThere, isClosed] = [false, false];
  engine.before = ({ path, response }) => {
    if (path !== '/v1/chat/completions') return;
    isThere = true;
    return new Promise((resolve) => {
      response.on('close', () => {
        isClosed = true;
        resolve();
      });
    });
  };
  const leaving = new AbortController();
  const reply = chat(leaving.signal).catch(() => null);
  await until(() => isThere);
  leaving.abort();
  await reply;
  return () => isClosed;
}
