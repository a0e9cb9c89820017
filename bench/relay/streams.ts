import { fileURLToPath } from 'node:url';
import { environment } from '../../cli/supervisor/component.ts';
import { sleep } from '../../core/sleep.ts';
import { rotated } from '../gateway/cell.ts';
import { runStreams, type StreamsResult } from '../gateway/load/streams.ts';
import { settled } from '../gateway/measure.ts';
import { startChild, type Child } from '../gateway/parts/child.ts';
import { startEngine, type BenchEngine } from '../gateway/parts/engine.ts';
import { BENCH_ADMIN_KEY, startGateway, type BenchGateway } from '../gateway/parts/gateway.ts';
import { startPostgres } from '../gateway/parts/postgres.ts';
import { cpuSeconds, peakMiB, resetPeaks, treeOf } from '../gateway/parts/usage.ts';

export type Load = { name: string; streams: number; tokens: number; paceMs: number; rounds: number };
/** The streams of one load over one way. `lost` were seen whole and are not recorded, `twice` are recorded more often than asked. */
export type Measured = StreamsResult & {
  load: string;
  way: 'by URL' | 'relay';
  repeat: number;
  errors: number;
  lost: number;
  twice: number;
  gatewayMiB: number;
  gatewayCores: number;
  /** All relay workers together. */
  workersMiB: number;
  workersCores: number;
};

type Options = { loads: readonly Load[]; workers: number; repeats: number; signal: AbortSignal };
type Way = { way: Measured['way']; gateway: BenchGateway; workers: readonly Child[] };

const MAIN = fileURLToPath(new URL('../../cli/trialgate.mjs', import.meta.url));
const SPREAD_MS = 1000;
const WARM_UP = { name: 'warm-up', streams: 16, tokens: 16, paceMs: 5, rounds: 4 };

/** Measures streams of the same engine by its URL and through relay workers, in turn. All parts are processes of their own. */
export async function measureStreams({ loads, workers, repeats, signal }: Options): Promise<Measured[]> {
  await using stack = new AsyncDisposableStack();
  const postgres = stack.use(await startPostgres(signal));
  const engine = stack.use(await startEngine(signal));
  const byUrl = stack.use(await startGateway({ postgres, engine: engine.url, signal }));
  const relay = stack.use(await startGateway({ postgres, engine: 'relay', signal }));
  const children: Child[] = [];
  for (let i = 0; i < workers; i++) {
    const named = ['--gateway', relay.url, '--engine', engine.url, '--id', `w${i}`];
    const worker = await startChild({
      name: 'a relay worker',
      file: process.execPath,
      args: [MAIN, 'relay-worker', ...named],
      env: environment({ TRIALGATE_ADMIN_KEY: BENCH_ADMIN_KEY }),
      ready: /(connected) to/,
      signal,
    });
    children.push(stack.use(worker));
  }
  await untilServed(relay, signal);
  const ways: Way[] = [
    { way: 'by URL', gateway: byUrl, workers: [] },
    { way: 'relay', gateway: relay, workers: children },
  ];
  for (const way of ways) await measure(engine, way, WARM_UP, 0, signal);
  const all: Measured[] = [];
  for (const load of loads)
    for (let repeat = 1; repeat <= repeats; repeat++)
      for (const way of rotated(ways, repeat)) all.push(await measure(engine, way, load, repeat, signal));
  return all;
}

/** Gives the workers' replicas to the run, and waits until a call is answered there. */
async function untilServed(gateway: BenchGateway, signal: AbortSignal): Promise<void> {
  const [trial] = await gateway.openTrials(1);
  for (;;) {
    await gateway.giveReplicas();
    const reply = await fetch(`${gateway.url}${trial?.path ?? ''}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${trial?.key ?? ''}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'policy', messages: [{ role: 'user', content: 'hello' }] }),
      signal,
    });
    await reply.text();
    if (reply.ok) return;
    await sleep(100, signal);
  }
}

async function measure(
  engine: BenchEngine,
  { way, gateway, workers }: Way,
  load: Load,
  repeat: number,
  signal: AbortSignal,
): Promise<Measured> {
  const { streams, tokens, paceMs, rounds } = load;
  await engine.set({ tokens, paceMs });
  const trials = await gateway.openTrials(streams * rounds);
  const lines = trials.map(({ id, path, key }) => ({ path, key, name: id }));
  const pids = { gateway: treeOf(gateway.pid), workers: workers.flatMap(({ pid }) => treeOf(pid)) };
  resetPeaks([...pids.gateway, ...pids.workers]);
  const before = await gateway.recorded();
  const cpu = () => ({ gateway: cpuSeconds(pids.gateway), workers: cpuSeconds(pids.workers) });
  const [began, used] = [performance.now(), cpu()];
  const forMs = SPREAD_MS + tokens * paceMs * rounds;
  const result = await runStreams(
    {
      ...{ url: gateway.url, lines, streams, tokens, rounds, forMs },
      ...{ direct: false, protocol: 'chat_completions', spreadMs: SPREAD_MS, warmMs: 0 },
    },
    signal,
  );
  const [seconds, after] = [(performance.now() - began) / 1000, cpu()];
  await settled({ gateway }, signal);
  const recorded = (await gateway.recorded()).completed - before.completed;
  return {
    ...result,
    ...{ load: load.name, way, repeat },
    errors: result.incomplete + result.refused + result.timeouts + result.broken,
    lost: Math.max(0, result.complete - recorded),
    twice: Math.max(0, recorded - result.begun),
    gatewayMiB: peakMiB(pids.gateway),
    gatewayCores: (after.gateway - used.gateway) / seconds,
    workersMiB: peakMiB(pids.workers),
    workersCores: (after.workers - used.workers) / seconds,
  };
}
