import { afterEach, describe, expect, test } from 'vitest';
import { FakeEngine, type Fault } from '../../tests/support/fakes/fake-engine.ts';
import { ASK, readStream, TestGateway } from '../../tests/support/harness/gateways.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { TokenEngine } from '../../tests/support/fakes/token-engine.ts';
import { preference } from './preference.ts';

const gateway = useDatabase(new TestGateway());
const started: { stop: () => Promise<void> }[] = [];
let isOpen = false;

async function end(): Promise<void> {
  if (isOpen) await gateway.gateway.close();
  isOpen = false;
  for (const engine of started.splice(0)) await engine.stop();
}
afterEach(end);

/** Returns a trial, and the engines in the order in which the trial prefers them. */
async function trialBefore<T extends { url: string; stop: () => Promise<void> }>(engines: T[]) {
  started.push(...engines);
  await gateway.start({ engines: engines.map(({ url }) => url) });
  isOpen = true;
  const trial = await gateway.trial();
  const [own, ...others] = preference(trial.id, engines);
  if (!own) throw new Error('no engine');
  return { trial, own, others };
}
const fakes = (count: number) => Promise.all(Array.from({ length: count }, () => new FakeEngine().start()));
const tokenEngines = () => Promise.all([new TokenEngine().start(), new TokenEngine().start()]);

async function inFlight(): Promise<number[]> {
  const metrics = Object.entries(await gateway.metrics());
  return metrics.filter(([name]) => name.startsWith('trialgate_engine_calls_in_flight')).map(([, count]) => count);
}

describe.each([false, true])('stream: %s', (stream) => {
  const body = { ...ASK, stream };

  test.each<[string, Fault | 'stopped', number]>([
    ['refuses connections', 'stopped', 0],
    ['cuts the connection before its reply', 'refuse', 1],
    ['says 500', 'status_500', 1],
    ['says 503', 'status_503', 1],
  ])('a call goes to another engine when the engine that it was sent to %s', async (_, fault, asked) => {
    const { trial, own, others } = await trialBefore(await fakes(2));
    if (fault === 'stopped') await own.stop();
    else own.fault = fault;
    const reply = await trial.chat(body);
    expect(reply.status).toBe(200);
    expect(await reply.text()).toContain('stop');
    expect([own, ...others].map((engine) => engine.seen.length)).toEqual([asked, 1]);
    expect(await trial.calls()).toMatchObject([{ status: 'completed', untrainable: null, engine: others[0]?.url }]);
    expect(await inFlight()).toEqual([0, 0]);
  });

  test('when every engine answers a call with an error, the gateway asks each engine once and passes the last error on', async () => {
    const engines = await fakes(3);
    const { trial } = await trialBefore(engines);
    for (const engine of engines) engine.fault = 'status_500';
    const reply = await trial.chat(body);
    expect([reply.status, (await reply.json()).error]).toEqual([
      502,
      expect.objectContaining({ code: 'engine_error', message: expect.stringContaining('engine core died') }),
    ]);
    expect(engines.map((engine) => engine.seen.length)).toEqual([1, 1, 1]);
    expect(await trial.calls()).toMatchObject([{ status: 'failed', fault: 'request' }]);
    expect(await inFlight()).toEqual([0, 0, 0]);
  });

  test.each<Fault>(['bad_request', 'context_too_long', 'cut', 'no_ids'])(
    'a call is sent to one engine only when that engine fails with `%s`',
    async (fault) => {
      const { trial, own, others } = await trialBefore(await fakes(2));
      own.fault = fault;
      await (await trial.chat(body)).text().catch(() => {});
      expect([own, ...others].map((engine) => engine.seen.length)).toEqual([1, 0]);
      expect(await trial.calls()).toHaveLength(1);
      expect(await inFlight()).toEqual([0, 0]);
    },
  );

  test.each([
    ['/v1/chat/completions/render', 500],
    ['/v1/chat/completions/render', 'cut'],
    ['/inference/v1/generate', 503],
    ['/inference/v1/generate', 'cut'],
    ['', 'stopped'],
  ] as const)(
    'a conversation continues from its recorded ids at another engine when the route %s of its own engine fails (%s)',
    async (path, fault) => {
      for (const parses of [false, true]) {
        const { trial, own, others } = await trialBefore(
          (await tokenEngines()).map((engine) => Object.assign(engine, { parses })),
        );
        const urls = [own.url, own.url, others[0]?.url];
        const messages: unknown[] = [...ASK.messages];
        for (const text of ['hello there', 'what else']) {
          own.script = [{ text }];
          const { choices } = await (await trial.chat({ messages })).json();
          messages.push(choices[0].message, { role: 'user', content: 'go on' });
        }
        if (fault === 'stopped') await own.stop();
        else own.fault = (asked) => (asked === path ? fault : null);
        const reply = await trial.chat({ messages, stream });
        expect(reply.status).toBe(200);
        expect(await reply.text()).toContain('stop');
        const calls = await trial.calls();
        expect(calls.map((call) => call.engine)).toEqual(urls);
        expect(calls.map((call) => [call.status, call.continuation])).toEqual([
          ['completed', null],
          ['completed', 'clean'],
          ['completed', 'clean'],
        ]);
        expect([own, ...others].map((engine) => engine.generated.length)).toEqual([2, 1]);
        expect(await inFlight()).toEqual([0, 0]);
        await end();
      }
    },
  );
});

test('a stream whose engine dies before the first chunk is answered by another engine, and its agent gets keep-alive comments meanwhile', async () => {
  const { trial, own, others } = await trialBefore(await fakes(2));
  await gateway.restart({ engines: [own.url, ...others.map(({ url }) => url)], settings: { keepAliveMs: 100 } });
  own.fault = 'cut_head';
  const { done, text } = await readStream(await trial.chat({ ...ASK, stream: true }));
  expect([done, text.startsWith(':')]).toEqual([true, true]);
  expect(await trial.calls()).toMatchObject([{ status: 'completed', untrainable: null, engine: others[0]?.url }]);
  expect(await inFlight()).toEqual([0, 0]);
});

test('one failed call does not take an engine out of rotation: the trial’s next call goes to it again', async () => {
  const { trial, own, others } = await trialBefore(await fakes(2));
  own.fault = 'status_500';
  await trial.chat(ASK);
  own.fault = 'none';
  await trial.chat(ASK);
  expect([own, ...others].map((engine) => engine.seen.length)).toEqual([2, 1]);
});

test('a stream whose engine fails after it began is not begun again on another engine', async () => {
  const { trial, own, others } = await trialBefore(await fakes(2));
  own.fault = 'error_event';
  expect(await readStream(await trial.chat({ ...ASK, stream: true }))).toMatchObject({ broken: true, done: false });
  expect([own, ...others].map((engine) => engine.seen.length)).toEqual([1, 0]);
});
