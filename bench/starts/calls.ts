import { once } from 'node:events';
import { createServer } from 'node:http';

/** A gateway that answers each call at once, and knows when each trial made its first one. */
export type Calls = Disposable & {
  url: string;
  firstOf: (trialId: string) => number;
  /** Lets replies wait until this number of trials have made a call, as an engine does that takes longer than the starts. */
  holdUntil: (trials: number) => void;
};

export async function listenForCalls(): Promise<Calls> {
  const first = new Map<string, number>();
  let awaited = 0;
  const waiting: (() => void)[] = [];
  const answerAll = (): void => waiting.splice(0).forEach((answer) => answer());
  const server = createServer((request, response) => {
    const trial = /^\/([^/]+)/.exec(request.url ?? '')?.[1] ?? '';
    if (!first.has(trial)) {
      first.set(trial, performance.now());
      awaited -= 1;
    }
    waiting.push(() => response.end('{}'));
    if (awaited <= 0) answerAll();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  return {
    url: `http://127.0.0.1:${port}`,
    firstOf: (trialId) => first.get(trialId) ?? Number.NaN,
    holdUntil: (trials) => {
      awaited = trials;
      if (awaited <= 0) answerAll();
    },
    [Symbol.dispose]: () => server.close().closeAllConnections(),
  };
}
