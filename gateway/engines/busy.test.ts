import { expect, test } from 'vitest';
import type { EngineConnection, EngineRequest } from './connection.ts';
import { Replica } from './replica.ts';

const ASK_MS = 50;

/** An engine whose scheduler answers the `patience`th time that it is asked, and whose server does where it `lives`. */
function busy(patience: number, lives: boolean): { connection: EngineConnection; asked: string[] } {
  const asked: string[] = [];
  const hangs = ({ signal }: EngineRequest) => new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
  async function* body() {
    yield new TextEncoder().encode('{"weight_version": "run@3"}');
  }
  const answer = () => ({ status: 200, contentType: 'application/json', body: body() });
  const ask = async (request: EngineRequest) => {
    asked.push(request.path);
    if (request.path === '/health' ? lives : asked.filter((path) => path !== '/health').length >= patience) return answer();
    return hangs(request);
  };
  return { asked, connection: { url: 'http://busy', epoch: 0, onChange: null, ask, send: ask, close: () => Promise.resolve() } };
}

test('an engine that is busy for long counts as lost', async () => {
  const { connection, asked } = busy(3, true);
  expect(await new Replica(connection, undefined, ASK_MS).label()).toBe('run@3');
  expect(asked).toEqual(['/weight_info', '/health', '/weight_info', '/health', '/weight_info']);
});

test('an engine whose scheduler never answers is waited for without end', async () => {
  const { connection, asked } = busy(Infinity, true);
  await expect(new Replica(connection, undefined, ASK_MS).label()).rejects.toThrow(/timeout/i);
  expect(asked.filter((path) => path === '/weight_info')).toHaveLength(3);
});

test('an engine that stands still is waited for', async () => {
  const { connection } = busy(3, false);
  await expect(new Replica(connection, undefined, ASK_MS).label()).rejects.toThrow(/timeout/i);
});
