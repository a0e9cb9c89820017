import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { TrialgateError } from '../../core/errors.ts';
import { replicas } from '../../store/schema.ts';
import { ADMIN_KEY, ASK, IN_WORKERD, readStream } from '../../tests/support/harness/gateways.ts';
import { openWire, TestWorker } from '../../tests/support/harness/relay.ts';
import { useTokenGateways } from '../../tests/support/harness/token-gateway.ts';
import { hangUpAtEngine } from '../../tests/support/scenarios/hang-up-at-engine.ts';
import { PING, PONG } from './hello.ts';
import type { NodeGatewayOptions } from '../runtimes/node/start-gateway.ts';

/**
 * Tests that workerd does not run: the grace time of a Durable Object is fixed, it does not stop, the health check does not count its workers,
 * and without relay mode there is none.
 */
const onNode = test.skipIf(IN_WORKERD);

describe('relay', () => {
  const gateway = useTokenGateways();
  const workers: TestWorker[] = [];
  let wire: Awaited<ReturnType<typeof openWire>>;

  const start = async (options: Partial<NodeGatewayOptions> = {}) => {
    await gateway.serve({}, { engines: ['relay'], ...options });
    wire = await openWire(gateway.gateway.url);
  };
  const dial = (id = 'w1', given: { gateway?: string; adminKey?: string; engine?: string } = {}) => {
    const worker = new TestWorker({
      gateway: given.gateway ?? wire.url,
      engine: given.engine ?? gateway.toy.url,
      adminKey: given.adminKey ?? ADMIN_KEY,
      id,
    });
    workers.push(worker);
    return worker;
  };
  const rows = () => gateway.replicaUrls();
  const connected = (...urls: string[]) => expect.poll(rows).toEqual(urls);
  afterEach(async () => {
    await Promise.all(workers.splice(0).map((worker) => worker.stop()));
    await wire?.link.close();
    await gateway.db.delete(replicas);
  });

  describe('with one worker', () => {
    beforeEach(async () => {
      await start({ settings: { holdMs: 2_000 } });
      dial();
      await connected('relay:w1');
    });

    test('a call is answered and recorded with the ids that the engine sampled', async () => {
      const trial = await gateway.trial();
      gateway.toy.script.push({ text: 'Hello 🦀' });
      const reply = await trial.chat(ASK);
      expect([reply.status, await reply.text()]).toEqual([200, expect.stringContaining('Hello 🦀')]);
      const [sampled] = gateway.toy.generated;
      expect(await trial.calls()).toMatchObject([
        {
          status: 'completed',
          engine: 'relay:w1',
          untrainable: null,
        },
      ]);
      const [call] = await trial.calls();
      expect([...(call?.promptTokenIds ?? [])]).toEqual(sampled?.prompt);
      expect([...(call?.completionTokenIds ?? [])]).toEqual(sampled?.completion);
    });

    test('a stream comes token by token, and the next turn goes on from its ids', async () => {
      const trial = await gateway.trial();
      gateway.toy.script.push({ text: 'one two' }, { text: 'three' });
      const first = await readStream(await trial.chat({ ...ASK, stream: true }));
      expect([first.done, first.broken]).toEqual([true, false]);
      const messages = [...ASK.messages, { role: 'assistant', content: 'one two' }, { role: 'user', content: 'on' }];
      const second = await readStream(await trial.chat({ ...ASK, messages, stream: true }));
      expect(second.done).toBe(true);
      expect(await trial.calls()).toMatchObject([
        { status: 'completed' },
        { continuation: 'clean', untrainable: null },
      ]);
    });

    test('fifty calls at once are answered, each with its own reply', async () => {
      gateway.toy.answer = ({ messages }) => ({ text: `you said ${messages.at(-1)?.content}` });
      const trial = await gateway.trial();
      const said = await Promise.all(
        Array.from({ length: 50 }, async (_, i) => {
          const reply = await trial.chat({ ...ASK, messages: [{ role: 'user', content: `number ${i}.` }] });
          return (await reply.text()).includes(`you said number ${i}.`);
        }),
      );
      expect(said.filter(Boolean)).toHaveLength(50);
      expect(await trial.calls()).toHaveLength(50);
    });

    test('an agent that hangs up ends the engine’s request', async () => {
      const trial = await gateway.trial();
      const isClosed = await hangUpAtEngine(gateway.toy, (signal) => trial.chat(ASK, { signal }));
      await expect.poll(isClosed).toBe(true);
    });

    test('a refusal of the engine reaches the agent with its status', async () => {
      gateway.toy.fault = (path) => (path === '/v1/chat/completions' ? 400 : null);
      expect((await (await gateway.trial()).chat(ASK)).status).toBe(400);
    });

    test('a large request, which the heavy thread answers, reaches the engine too', async () => {
      const trial = await gateway.trial();
      const content = 'word '.repeat(200_000);
      const reply = await trial.chat({ ...ASK, messages: [{ role: 'user', content }] });
      expect(reply.status).toBe(200);
      expect(await trial.calls()).toMatchObject([{ status: 'completed', engine: 'relay:w1', untrainable: null }]);
    });

    test('an engine that gets new weights within a stream is noticed', async () => {
      await gateway.givePool('run', 'run@1');
      gateway.toy.weightVersion = 'run@1';
      const trial = await gateway.trial({ trialId: 'run-0.1-0-0', runId: 'run' });
      expect((await trial.chat(ASK)).status).toBe(200);
      gateway.toy.before = async ({ path }) => {
        if (path === '/v1/chat/completions') gateway.toy.weightVersion = 'run@2';
        await gateway.toy.stop();
        await gateway.toy.start();
      };
      const reply = await trial.chat(ASK);
      await reply.text();
      const calls = await trial.calls();
      expect(calls[0]).toMatchObject({ status: 'completed', policyVersion: 1, untrainable: null });
      expect(calls.slice(1).some(({ status, untrainable }) => status === 'completed' && untrainable === null)).toBe(
        false,
      );
    });

    test('two workers share the calls, and one that stops takes none with it', async () => {
      const second = dial('w2');
      await connected('relay:w1', 'relay:w2');
      // The gateway reads its engines every 200 ms.
      await new Promise((resolve) => setTimeout(resolve, 250));
      gateway.toy.pace = 20;
      let begun = 0;
      gateway.toy.before = ({ path }) => void (begun += Number(path === '/v1/chat/completions'));
      gateway.toy.answer = () => ({ text: 'slowly said, so that it is under way for a while' });
      const trials = await Promise.all(Array.from({ length: 20 }, () => gateway.trial()));
      const replies = trials.map(async (trial) => readStream(await trial.chat({ ...ASK, stream: true })));
      await expect.poll(() => begun).toBe(20);
      await second.stop();
      expect((await Promise.all(replies)).map(({ done }) => done)).not.toContain(false);
      await connected('relay:w1');
      const engines = (await Promise.all(trials.map((trial) => trial.calls()))).flat().map(({ engine }) => engine);
      expect(new Set(engines)).toEqual(new Set(['relay:w1', 'relay:w2']));
      expect(engines).toHaveLength(20);
    });

    onNode('the list of workers and the health check say who is there', async () => {
      const { workers: listed } = await (await gateway.admin('GET', '/relay/workers')).json();
      expect(listed).toEqual([{ worker_id: 'w1', engine: 'relay:w1', frames: 'own', connected: true }]);
      const health = await (await fetch(`${gateway.gateway.url}/health`)).json();
      expect(health).toEqual({ status: 'ok', mode: 'relay', connected_workers: 1 });
      expect((await fetch(`${gateway.gateway.url}/relay/workers`)).status).toBe(401);
    });

    test('with the admin key the engine’s own routes are reached, and only those that the gateway and the trainer use', async () => {
      const at = '/relay/workers/w1';
      const version = await gateway.admin('GET', `${at}/weight_info`);
      expect(await version.json()).toEqual({ weight_version: 'default' });
      const asked: string[] = [];
      gateway.toy.route = (method, path) => void asked.push(`${method} ${path}`);
      expect((await gateway.admin('POST', `${at}/pause?mode=keep&clear_cache=false`)).status).toBe(404);
      expect(asked).toEqual(['POST /pause?mode=keep&clear_cache=false']);
      asked.length = 0;
      const load = (method: string) => gateway.admin('POST', `${at}/collective_rpc`, { method, kwargs: {} });
      await load('reload_weights');
      for (const refused of [
        await load('execute_model'),
        await gateway.admin('POST', `${at}/collective_rpc`, { method: 'reload_weights', args: ['/any/path'] }),
        await gateway.admin('GET', `${at}/load`),
        await gateway.admin('POST', `${at}/v1/audio/transcriptions`, {}),
        await gateway.admin('GET', `${at}/v1/models/../../secret`),
        await gateway.admin('GET', `${at}//v1/models`),
      ])
        expect([refused.status, await refused.text()]).toEqual([403, expect.stringContaining('not_relayed')]);
      expect(asked).toEqual(['POST /collective_rpc']);
      expect((await fetch(`${gateway.gateway.url}${at}/weight_info`)).status).toBe(401);
      expect((await gateway.admin('GET', '/relay/workers/nobody/weight_info')).status).toBe(404);
    });
  });

  test('a worker that keeps no checkpoints has none to fetch, and says what to do when its engine cannot load one', async () => {
    await start();
    const worker = dial();
    await connected('relay:w1');
    const asked: string[] = [];
    gateway.toy.route = (method, path) => void asked.push(`${method} ${path}`);
    const post = (route: string, body: unknown) => gateway.admin('POST', `/relay/workers/w1${route}`, body);
    const path = '/srv/trialgate/checkpoints/v1';
    expect(await (await post('/trialgate/checkpoint', { path })).json()).toEqual({ ready: true });
    expect((await post('/trialgate/checkpoint', { path: 1 })).status).toBe(400);
    expect((await gateway.admin('GET', '/relay/workers/w1/trialgate/checkpoint')).status).toBe(403);
    await post('/v1/load_lora_adapter', { lora_name: '', lora_path: '' });
    expect(worker.log.join('\n')).not.toContain('--checkpoints');
    await post('/v1/load_lora_adapter', { lora_name: 'r@1', lora_path: path });
    expect(worker.log.at(-1)).toBe(
      `the engine did not load ${path}: if its machine does not see the deployment's folder, start this worker with --checkpoints DIR`,
    );
    expect(asked).toEqual(['POST /v1/load_lora_adapter', 'POST /v1/load_lora_adapter']);
  });

  test('100 cut sockets lose no call, and record none twice', async () => {
    await start();
    const worker = dial();
    await connected('relay:w1');
    gateway.toy.pace = 2;
    gateway.toy.answer = ({ messages }) => ({ text: `you said ${messages.at(-1)?.content} and more` });
    const over = new AbortController();
    const streams = Array.from({ length: 8 }, async (_, s) => {
      const trial = await gateway.trial();
      let calls = 0;
      for (; !over.signal.aborted; calls++) {
        const messages = [{ role: 'user', content: `${s}-${calls}.` }];
        const reply = await readStream(await trial.chat({ ...ASK, messages, stream: calls % 2 === 0 }));
        expect(reply.text).toContain(calls % 2 === 0 ? 'data: [DONE]' : `you said ${s}-${calls}. and more`);
      }
      return { trial, calls };
    });
    for (let cuts = 0; cuts < 100;) {
      // Each cut is one of a connection that stands.
      await expect
        .poll(() => worker.log.filter((line) => line.startsWith('connected')), { interval: 5 })
        .toHaveLength(cuts + 1);
      await new Promise((resolve) => setTimeout(resolve, 10));
      wire.link.cut();
      wire.link.restore();
      cuts += 1;
    }
    over.abort();
    for (const { trial, calls } of await Promise.all(streams)) {
      const recorded = await trial.calls();
      expect(recorded).toHaveLength(calls);
      expect(recorded.filter(({ status, untrainable }) => status !== 'completed' || untrainable !== null)).toEqual([]);
    }
    await expect.poll(() => worker.log.filter((line) => line.includes('dials again'))).toHaveLength(100);
  });

  test('a slow reader holds the engine back, and gets all of it', async () => {
    await start();
    dial();
    await connected('relay:w1');
    // The reply is larger than all sockets between the engine and the reader can hold. The kernel gives each socket up to 36 MiB.
    const size = 128 * 2 ** 20;
    let sent = 0;
    let isDone = false;
    gateway.toy.route = (_, path) => (path === '/tokenize' ? { tokens: [] } : undefined);
    gateway.toy.before = async ({ path, response }) => {
      if (path !== '/detokenize') return;
      response.writeHead(200, { 'content-type': 'application/json' });
      const part = Buffer.alloc(64 * 1024, 'x');
      while (sent < size) {
        sent += part.length;
        if (!response.write(part)) await new Promise((resolve) => response.once('drain', resolve));
      }
      isDone = true;
      await new Promise((resolve) => response.end(resolve));
      response.destroy();
    };
    const reply = await gateway.admin('POST', '/relay/workers/w1/detokenize', {});
    const reader = reply.body?.getReader();
    let read = (await reader?.read())?.value?.byteLength ?? 0;
    // The bytes that it wrote wait in the sockets between the two, and there come no more.
    let before = -1;
    await expect
      .poll(
        () => {
          const grown = sent - before;
          before = sent;
          return grown;
        },
        { interval: 500 },
      )
      .toBe(0);
    expect(isDone).toBe(false);
    for (let part = await reader?.read(); part && !part.done; part = await reader?.read())
      read += part.value.byteLength;
    expect(read).toBe(size);
  });

  onNode(
    'a worker that is gone for good fails its calls after the grace time, and another worker takes them',
    async () => {
      await start({ relayGraceMs: 300 });
      const first = dial('w1');
      await connected('relay:w1');
      let held = 0;
      gateway.toy.before = ({ path }) =>
        path === '/v1/chat/completions' && held++ === 0 ? new Promise(() => {}) : undefined;
      const trial = await gateway.trial();
      const reply = trial.chat(ASK);
      await expect.poll(() => held).toBe(1);
      wire.link.cut();
      const direct = dial('w2', { gateway: gateway.gateway.url });
      expect((await reply).status).toBe(200);
      expect(await trial.calls()).toMatchObject([{ status: 'completed', engine: 'relay:w2' }]);
      await connected('relay:w2');
      await Promise.all([first.stop(), direct.stop()]);
    },
  );

  onNode('a call outlives a cut that is shorter than the grace time', async () => {
    await start({ relayGraceMs: 20_000 });
    dial();
    await connected('relay:w1');
    const { promise: answered, resolve: answer } = Promise.withResolvers<void>();
    let held = 0;
    gateway.toy.before = ({ path }) => {
      if (path !== '/v1/chat/completions') return;
      held += 1;
      return answered;
    };
    const trial = await gateway.trial();
    const reply = trial.chat(ASK);
    await expect.poll(() => held).toBe(1);
    wire.link.cut();
    answer();
    await new Promise((resolve) => setTimeout(resolve, 200));
    wire.link.restore();
    expect((await reply).status).toBe(200);
    expect(await trial.calls()).toMatchObject([{ status: 'completed' }]);
    expect(held).toBe(1);
  });

  onNode('after a restart of the gateway the worker is back by itself', async () => {
    await start({ port: 0 });
    const port = Number(new URL(gateway.gateway.url).port);
    const worker = dial('w1', { gateway: gateway.gateway.url });
    await connected('relay:w1');
    await gateway.restart({ engines: ['relay'], port });
    await connected('relay:w1');
    expect((await (await gateway.trial()).chat(ASK)).status).toBe(200);
    expect(worker.log.filter((line) => line.startsWith('connected'))).toHaveLength(2);
  });

  test('a wrong key ends the worker with what to do', async () => {
    await start();
    const error = await dial('w1', { adminKey: 'another-admin-key' }).ended;
    expect(error).toBeInstanceOf(TrialgateError);
    expect(error).toMatchObject({ code: 'unauthorized', message: expect.stringContaining('--admin-key') });
  });

  onNode(
    'a gateway that is not in relay mode ends the worker with what to do, and its close code is verl’s',
    async () => {
      await start({ engines: [] });
      const error = await dial().ended;
      expect(error).toMatchObject({ message: expect.stringContaining('--engine relay') });
      expect(await closeCode(`?key=${ADMIN_KEY}`)).toBe(4002);
    },
  );

  test('an engine that is not there ends the worker with what to do', async () => {
    await start();
    const error = await dial('w1', { engine: 'http://127.0.0.1:1' }).ended;
    expect(error).toMatchObject({ code: 'missing_prerequisite', message: expect.stringContaining('--engine') });
  });

  test('a second worker of the same name takes the place of the first, which ends with what to do', async () => {
    await start();
    const first = dial('w1');
    await connected('relay:w1');
    dial('w1');
    expect(await first.ended).toMatchObject({ message: expect.stringContaining('--id') });
    expect((await (await gateway.trial()).chat(ASK)).status).toBe(200);
  });

  test('a first message that is no hello closes with 4001, and an invalid hello with 4000', async () => {
    await start();
    const key = `?key=${ADMIN_KEY}`;
    expect(await closeCode(key, '{"type":"completion_response"}')).toBe(4001);
    expect(await closeCode(key, 'not JSON')).toBe(4001);
    expect(await closeCode(key, '{"type":"worker_hello","worker_id":"../x"}')).toBe(4000);
    expect(
      await closeCode(
        key,
        '{"type":"worker_hello","worker_id":"w","protocols":["trialgate.relay.v1"],"session":"s"}',
        Buffer.alloc(40, 99),
      ),
    ).toBe(4004);
  });

  test('a worker of our own frames gets an answer to its ping, is still served, and gets an answer to its close', async () => {
    await start();
    const socket = new WebSocket(`${gateway.gateway.url.replace('http', 'ws')}/ws/worker?key=${ADMIN_KEY}`);
    const texts: string[] = [];
    socket.on('message', (data: Buffer, isBinary) => void (isBinary || texts.push(data.toString())));
    await once(socket, 'open');
    socket.send('{"type":"worker_hello","worker_id":"w","protocols":["trialgate.relay.v1"],"session":"s"}');
    await expect.poll(() => texts).toHaveLength(1);
    socket.send(PING);
    await expect.poll(() => texts[1]).toBe(PONG);
    expect(socket.readyState).toBe(WebSocket.OPEN);
    socket.close(1000);
    expect((await once(socket, 'close'))[0]).toBe(1000);
  });

  test('other routes refuse a WebSocket as before', async () => {
    await start();
    const socket = new WebSocket(`${gateway.gateway.url.replace('http', 'ws')}/v1/realtime`);
    const status = await new Promise((resolve) => {
      socket.on('unexpected-response', (_, response) => resolve(response.statusCode));
      socket.on('error', () => {});
    });
    expect(status).toBe(426);
  });

  async function closeCode(query: string, ...messages: (string | Buffer)[]): Promise<number> {
    const socket = new WebSocket(`${gateway.gateway.url.replace('http', 'ws')}/ws/worker${query}`);
    socket.on('open', () => messages.forEach((message) => socket.send(message)));
    return new Promise((resolve, reject) => {
      socket.on('close', (code) => resolve(code));
      socket.on('error', reject);
    });
  }
});
