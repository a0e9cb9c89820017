import type { BenchEngine } from './parts/engine.ts';
import type { BenchGateway } from './parts/gateway.ts';
import type { BenchPostgres } from './parts/postgres.ts';
import type { Line } from './load/wrk.ts';
import type { Wrk } from './load/wrk-install.ts';
import type { Window } from './profile.ts';
import type { Report } from './report.ts';
import type { ProtocolName } from '../../store/schema.ts';

export type Options = { seconds: number; repeats: number; peers: boolean };

/** The parts that a cell measures with. The fake engine and PostgreSQL are shared; each cell starts a fresh gateway. */
export type Bench = {
  options: Options;
  engine: BenchEngine;
  postgres: BenchPostgres;
  wrk: Wrk;
  report: Report;
  /** The time windows of the measurements. */
  windows: Window[];
  startGateway: (options?: { engine?: string; processes?: number }) => Promise<BenchGateway>;
  /** Starts other gateways in front of the same engine, with `--peers`. */
  startPeers: (stream: boolean) => Promise<Target[]>;
  signal: AbortSignal;
};

export type Cell = { name: string; about: string; run: (bench: Bench) => Promise<void> };

/** A receiver of load: the engine itself, the gateway, or another gateway in front of the same engine. */
export type Target = AsyncDisposable & {
  name: string;
  url: string;
  /** The pid of its first process, or null for the engine itself. */
  pid: number | null;
  /** Further processes, which share the load with the first one. */
  more?: { pid: number; url: string }[];
  /** True when the client itself must ask for ids and log-probabilities. */
  direct: boolean;
  headers?: string;
  /** Opens this number of conversations. */
  lines: (count: number) => Promise<Line[]>;
  gateway?: BenchGateway;
  lastError?: () => string | undefined;
};

const nothing = () => Promise.resolve();
let names = 0;

/** A target and the protocol in which it is called. */
export type ProtocolTarget = { target: Target; protocol: ProtocolName };

/** Returns the baseline, which is the engine alone on its own chat route, then the gateway in each of these protocols. */
export const protocolTargets = (
  bench: Bench,
  gateway: BenchGateway,
  protocols: readonly ProtocolName[],
): ProtocolTarget[] => [
  { target: directTarget(bench.engine), protocol: 'chat_completions' },
  ...protocols.map((protocol) => ({ target: { ...gatewayTarget(gateway), name: protocol }, protocol })),
];

/** Returns the baseline of each cell: the engine itself. */
export const directTarget = ({ url }: { url: string }): Target => ({ ...plainTarget('direct', url), pid: null });

/** Returns a target that answers at OpenAI's own path. */
export function plainTarget(name: string, url: string, dispose: () => Promise<void> = nothing): Target {
  const line = () => ({ path: '/v1/chat/completions', key: 'none', name: `trial-${++names}` });
  return {
    name,
    url,
    pid: null,
    direct: true,
    lines: (count) => Promise.resolve(Array.from({ length: count }, line)),
    [Symbol.asyncDispose]: dispose,
  };
}

export const gatewayTarget = (gateway: BenchGateway): Target => ({
  name: 'trialgate',
  url: gateway.url,
  pid: gateway.pid,
  more: gateway.more,
  direct: false,
  gateway,
  lines: async (count) => (await gateway.openTrials(count)).map(({ id, path, key }) => ({ path, key, name: id })),
  [Symbol.asyncDispose]: nothing,
});

/** Returns the targets in another order for each repeat, so that changes on the machine affect all of them. */
export const rotated = <T>(targets: readonly T[], repeat: number): T[] =>
  targets.map((_, i) => targets[(i + repeat - 1) % targets.length] as T);
