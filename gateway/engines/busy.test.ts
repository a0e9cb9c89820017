import { afterEach, expect, test, vi } from 'vitest';
import type { EngineConnection, EngineRequest } from './connection.ts';
import { Replica } from './replica.ts';

const ASK_MS = 50;

/** Returns an engine whose scheduler answers at the times that `answers` accepts, and whose server answers when it `lives`. */
function busy(answers: (time: number) => boolean, lives: boolean): { connection: EngineConnection; asked: string[] } {
  const asked: string[] = [];
  const hangs = ({ signal }: EngineRequest) =>
    new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
  async function* body() {
    yield new TextEncoder().encode('{"weight_version": "run@3"}');
  }
  const answer = () => ({ status: 200, contentType: 'application/json', body: body() });
  const ask = async (request: EngineRequest) => {
    asked.push(request.path);
    if (request.path === '/health' ? lives : answers(asked.filter((path) => path !== '/health').length))
      return answer();
    return hangs(request);
  };
  return {
    asked,
    connection: { url: 'http://busy', epoch: 0, onChange: null, ask, send: ask, close: () => Promise.resolve() },
  };
}

afterEach(() => void vi.useRealTimers());

test('calls use the last known weight version while the gateway asks a busy engine for it again', async () => {
  vi.useFakeTimers({ toFake: ['Date'] });
  const { connection, asked } = busy((time) => time === 1, true);
  const replica = new Replica(connection, undefined, ASK_MS);
  const weightVersionAfter = (ms: number) => {
    vi.setSystemTime(Date.now() + ms);
    return replica.weightVersion(1_000);
  };
  const timesAsked = () => asked.filter((path) => path === '/weight_info').length;
  expect([await weightVersionAfter(0), await weightVersionAfter(400), timesAsked()]).toEqual(['run@3', 'run@3', 1]);
  expect([await weightVersionAfter(200), timesAsked(), await weightVersionAfter(10_000), timesAsked()]).toEqual([
    'run@3',
    2,
    'run@3',
    2,
  ]);
  await vi.waitUntil(() => timesAsked() === 4);
  expect(await weightVersionAfter(10_000)).toBe('run@3');
});

test('the gateway asks an engine that is busy and healthy again until it tells its weight version', async () => {
  const { connection, asked } = busy((time) => time >= 3, true);
  expect(await new Replica(connection, undefined, ASK_MS).weightVersion()).toBe('run@3');
  expect(asked).toEqual(['/weight_info', '/health', '/weight_info', '/health', '/weight_info']);
});

test('the gateway gives an engine up that is healthy but does not tell its weight version in three tries', async () => {
  const { connection, asked } = busy(() => false, true);
  await expect(new Replica(connection, undefined, ASK_MS).weightVersion()).rejects.toThrow(/timeout/i);
  expect(asked.filter((path) => path === '/weight_info')).toHaveLength(3);
});

test('the gateway gives an engine up that neither tells its weight version nor is healthy', async () => {
  const { connection } = busy((time) => time >= 3, false);
  await expect(new Replica(connection, undefined, ASK_MS).weightVersion()).rejects.toThrow(/timeout/i);
});
