import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { eq } from 'drizzle-orm';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { replicas } from '../../../../store/schema.ts';
import { KubernetesApiServer } from '../../../../tests/support/fakes/kubernetes-api-server.ts';
import { TokenEngine } from '../../../../tests/support/fakes/token-engine.ts';
import { openWire } from '../../../../tests/support/harness/relay.ts';
import { ASK, eventually, IN_WORKERD, readStream } from '../../../../tests/support/harness/gateways.ts';
import { useTokenGateways } from '../../../../tests/support/harness/token-gateway.ts';
import { startGateway, type NodeGateway, type NodeGatewayOptions } from '../start-gateway.ts';

// A Worker has neither files nor time of its own; it uses the engines that the gateways on Node have found.
describe.skipIf(IN_WORKERD)('engines that come and go', () => {
  const gateway = useTokenGateways();
  const more: TokenEngine[] = [];
  let folder: string;
  let path: string;
  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'membership-'));
    path = join(folder, 'engines.yaml');
    await gateway.db?.delete(replicas);
  });
  afterEach(async () => {
    await Promise.all(more.splice(0).map((engine) => engine.stop()));
    rmSync(folder, { recursive: true });
  });

  const another = async (): Promise<TokenEngine> => {
    const engine = await new TokenEngine().start();
    more.push(engine);
    return engine;
  };

  /** Writes the file anew, as a deployment tool does. */
  function list(...entries: (TokenEngine | { url: string; drain: true } | string)[]): void {
    const listed = entries.map((entry) => (entry instanceof TokenEngine ? entry.url : entry));
    writeFileSync(`${path}.new`, JSON.stringify(listed));
    renameSync(`${path}.new`, path);
  }

  async function serve(options: Partial<NodeGatewayOptions> = {}): Promise<TokenEngine> {
    await gateway.openEngine();
    list(gateway.toy);
    await gateway.start({ engines: [], enginesFile: path, ...options });
    return gateway.toy;
  }

  const rows = async () =>
    (await gateway.db.select().from(replicas)).map(({ url, draining }) => (draining ? `(${url})` : url)).toSorted();
  const become = (...expected: string[]) => expect.poll(rows).toEqual(expected.toSorted());

  /** Lets 12 trials talk without a pause, half of them in streams, until `stop`, which returns how many calls were made. All must succeed. */
  async function underLoad(...engines: TokenEngine[]) {
    for (const engine of engines) engine.before = () => sleep(10 + Math.random() * 20);
    const stopping = new AbortController();
    let calls = 0;
    const trials = await Promise.all(Array.from({ length: 12 }, () => gateway.trial()));
    const talking = trials.map(async (trial, i) => {
      const messages = [{ role: 'user', content: 'Say hello' }];
      while (!stopping.signal.aborted) {
        const reply = await trial.chat({ ...ASK, messages, stream: i % 2 === 0 });
        const answered =
          i % 2 === 0 ? (await readStream(reply)).done : reply.status === 200 && (await reply.text()).length > 0;
        expect(answered).toBe(true);
        calls += 1;
        messages.push({ role: 'assistant', content: 'nothing to say' }, { role: 'user', content: `again ${calls}` });
      }
    });
    return async () => {
      stopping.abort();
      await Promise.all(talking);
      const recorded = (await Promise.all(trials.map((trial) => trial.calls()))).flat();
      expect(recorded.map(({ status }) => status)).toEqual(Array(calls).fill('completed'));
      return calls;
    };
  }

  test('an engine that joins under load gets calls without a restart, and no call is lost', async () => {
    const first = await serve();
    const second = await another();
    const stop = await underLoad(first, second);
    await eventually(() => first.generated.length > 20);
    list(first, second);
    await eventually(() => second.generated.length > 20);
    await stop();
    expect(gateway.log).toContain(`engines by file: ${second.url} joined`);
  });

  test('an engine that drains under load gets no new calls, its trials move on, and no call is lost', async () => {
    const first = await serve();
    const second = await another();
    list(first, second);
    await become(first.url, second.url);
    const stop = await underLoad(first, second);
    await eventually(() => first.generated.length > 20 && second.generated.length > 20);
    list(first, { url: second.url, drain: true });
    await become(first.url, `(${second.url})`);
    // The rows are read again within 0.2 s.
    await sleep(300);
    await eventually(async () => (await engineAt(second.url))?.calls_in_flight === 0);
    const given = second.generated.length;
    const before = first.generated.length;
    await eventually(() => first.generated.length > before + 50);
    expect(second.generated.length).toBe(given);
    list(first, second);
    await eventually(() => second.generated.length > given);
    await stop();
  });

  test('an engine that leaves completes its calls under way, gets no new ones, and is then forgotten', async () => {
    const first = await serve();
    const second = await another();
    list(second);
    await become(second.url);
    const held = Promise.withResolvers<void>();
    second.before = ({ path: route }) => (route === '/v1/chat/completions' ? held.promise : undefined);
    const trial = await gateway.trial();
    const underWay = trial.chat({ ...ASK, stream: true }).then(readStream);
    await eventually(async () => (await engineAt(second.url))?.calls_in_flight === 1);
    list(first);
    await become(first.url);
    expect(await engineAt(second.url)).toMatchObject({ state: 'left', found_by: null, calls_in_flight: 1 });
    await eventually(async () => {
      await (await (await gateway.trial()).chat(ASK)).text();
      return first.generated.length > 0;
    });
    held.resolve();
    expect(await underWay).toMatchObject({ done: true, broken: false });
    await eventually(async () => {
      await (await (await gateway.trial()).chat(ASK)).text();
      return !Object.keys(await gateway.metrics()).some((name) => name.includes(second.url));
    });
    expect(second.generated).toHaveLength(1);
  });

  test('a file that turns bad keeps the last engines; one line of the log and /health say so, the reason with the admin key only', async () => {
    const first = await serve();
    await become(first.url);
    expect(await discovery()).toEqual([{ found_by: 'file', status: 'ok', engines: 1 }]);
    writeFileSync(path, '- http://one:1\n- ftp://two\n');
    await expect.poll(discovery).toMatchObject([{ status: 'failing', engines: 1, reason: expect.any(String) }]);
    const [{ reason = '' } = {}] = await discovery();
    expect(reason).toMatch(/engines\.yaml: 1: expected an engine/);
    expect(await (await fetch(`${gateway.gateway.url}/health`)).text()).not.toContain('engines.yaml');
    expect((await (await gateway.trial()).chat(ASK)).status).toBe(200);
    expect(await rows()).toEqual([first.url]);
    rmSync(path);
    await expect
      .poll(discovery)
      .toMatchObject([{ status: 'failing', reason: expect.stringContaining('cannot be read') }]);
    expect(gateway.log.filter((line) => line.includes('engines.yaml'))).toHaveLength(2);
    list(first);
    await expect.poll(discovery).toEqual([{ found_by: 'file', status: 'ok', engines: 1 }]);
    expect(gateway.log).toContain('engines by file are followed again');
  });

  test('a gateway that starts with a bad file serves with the engines that the last one found', async () => {
    const first = await serve();
    await become(first.url);
    writeFileSync(path, '- nonsense');
    await gateway.restart({ engines: [], enginesFile: path });
    expect(await discovery()).toMatchObject([{ found_by: 'file', status: 'failing', engines: null }]);
    expect((await (await gateway.trial()).chat(ASK)).status).toBe(200);
  });

  test('a gateway that starts without the file removes the engines that only the file named', async () => {
    const first = await serve();
    const second = await another();
    list(second);
    await become(second.url);
    await gateway.restart({ engines: [first.url] });
    expect(await rows()).toEqual([first.url]);
  });

  test('a change that PostgreSQL refuses waits, and is written once PostgreSQL takes it', async () => {
    const first = await serve();
    const second = await another();
    await become(first.url);
    await gateway.db.execute('alter table replicas rename to replicas_away');
    list(first, second);
    await eventually(() => gateway.log.some((line) => line.includes('the change of engines waits for the store')));
    await gateway.db.execute('alter table replicas_away rename to replicas');
    await become(first.url, second.url);
  });

  test('a list that is empty, and an engine that is not ready yet, are named in the log', async () => {
    const first = await serve();
    list({ url: 'http://127.0.0.1:9', drain: true }, first);
    await eventually(() => gateway.log.includes('engines by file: http://127.0.0.1:9 is not ready or drains'));
    list();
    await eventually(() =>
      gateway.log.includes(`engines by file: http://127.0.0.1:9 left, ${first.url} left, none is there now`),
    );
  });

  test('several gateways with one database see the same engines, and one that cannot read its file removes none', async () => {
    const first = await serve();
    const second = await another();
    const own = join(folder, 'own.yaml');
    writeFileSync(own, JSON.stringify([first.url]));
    const other = await startOther({ enginesFile: own });
    try {
      rmSync(own);
      await expect
        .poll(async () => (await (await fetch(`${other.url}/health`)).json()).engine_discovery)
        .toMatchObject([{ status: 'failing' }]);
      list(first, second);
      await become(first.url, second.url);
      list(second);
      await become(second.url);
      const trial = await gateway.trial();
      const reply = await fetch(`${other.url}/${trial.id}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${trial.key}`, 'content-type': 'application/json' },
        body: JSON.stringify(ASK),
      });
      expect([reply.status, second.generated.length]).toEqual([200, 1]);
      // One that starts with other settings removes them, and those that find them put them back.
      await (await startOther({ engines: [first.url] })).close();
      await become(first.url, second.url);
    } finally {
      await other.close();
    }
  });

  test('an engine that joins while a run owns the pool waits out of rotation for the run’s weights; one of another kind serves trials outside runs only', async () => {
    const first = await serve();
    await become(first.url);
    await gateway.givePool('run', 'run@1');
    const second = await another();
    list(first, second, 'openai+http://127.0.0.1:9');
    await become(first.url, second.url, 'openai+http://127.0.0.1:9');
    expect(await rowOf(second.url)).toMatchObject({ runId: 'run', weightVersion: 'run@1', inRotation: false });
    expect(await rowOf('openai+http://127.0.0.1:9')).toMatchObject({ runId: null, inRotation: true });
    expect(gateway.log).toContainEqual(expect.stringContaining('none can be trained on'));
    // It drains, and the run publishes its next version to the others.
    await gateway.db.update(replicas).set({ inRotation: true }).where(eq(replicas.url, second.url));
    list(first, { url: second.url, drain: true });
    await become(first.url, `(${second.url})`);
    await gateway.db.update(replicas).set({ weightVersion: 'run@2' }).where(eq(replicas.url, first.url));
    list(first, second);
    await become(first.url, second.url);
    expect(await rowOf(second.url)).toMatchObject({ runId: 'run', weightVersion: 'run@2', inRotation: false });
  });

  describe('in pods', () => {
    let server: KubernetesApiServer;
    let wire: Awaited<ReturnType<typeof openWire>> | undefined;
    beforeEach(async () => {
      server = await new KubernetesApiServer().start();
    });
    afterEach(async () => {
      await server.stop();
      await wire?.link.close();
    });

    test('pods that get ready join, those that terminate drain, deleted ones leave, and calls under way end', async () => {
      await gateway.openEngine();
      const first = gateway.toy;
      const second = await another();
      const port = Number(new URL(first.url).port);
      const at = `http://127.0.0.2:${port}`;
      wire = await openWire(second.url, { host: '127.0.0.2', port });
      server.apply({ name: 'a', ip: '127.0.0.1' });
      const options = { selector: 'app=engine', namespace: 'serving', port, api: server.url };
      await gateway.start({ engines: [], enginesKubernetes: options });
      expect(await rows()).toEqual([first.url]);
      server.apply({ name: 'b', ip: '127.0.0.2', ready: false });
      const stop = await underLoad(first, second);
      await eventually(() => first.generated.length > 20);
      expect(second.generated).toEqual([]);
      server.apply({ name: 'b', ready: true });
      await eventually(() => second.generated.length > 20);
      server.apply({ name: 'b', terminating: true });
      await become(first.url, `(${at})`);
      server.delete('b');
      await become(first.url);
      await eventually(async () => (await engineAt(at)) === undefined);
      await server.stop();
      await expect.poll(discovery).toMatchObject([{ found_by: 'kubernetes', status: 'failing', engines: 1 }]);
      const before = first.generated.length;
      await eventually(() => first.generated.length > before + 20);
      await stop();
    });
  });

  const rowOf = async (url: string) => (await gateway.db.select().from(replicas).where(eq(replicas.url, url)))[0];

  const engineAt = async (url: string) => {
    const { engines }: { engines: { url: string; state: string; found_by: string | null; calls_in_flight: number }[] } =
      await (await gateway.admin('GET', '/engines')).json();
    return engines.find((engine) => engine.url === url);
  };

  const discovery = async (): Promise<{ status: string; reason?: string }[]> =>
    (await (await gateway.admin('GET', '/health')).json()).engine_discovery;

  const startOther = (options: Partial<NodeGatewayOptions>): Promise<NodeGateway> =>
    startGateway({
      host: '127.0.0.1',
      port: 0,
      databaseUrl: gateway.postgres.url,
      adminKey: null,
      secret: 'a secret of sixteen characters',
      engines: [],
      ...options,
    });
});
