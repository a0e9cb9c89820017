import type { ProtocolName } from '../../store/schema.ts';
import type { BenchEngine } from './parts/engine.ts';
import type { BenchGateway } from './parts/gateway.ts';
import type { BenchPostgres } from './parts/postgres.ts';
import type { Line } from './load/wrk.ts';
import type { Wrk } from './load/wrk-install.ts';
import type { Window } from './profile.ts';
import type { Report } from './report.ts';

export type Options = { seconds: number; repeats: number; peers: boolean };

/** What a cell measures with. The fake engine and PostgreSQL are there; a gateway is started by each cell, fresh. */
export type Bench = {
  options: Options;
  engine: BenchEngine;
  postgres: BenchPostgres;
  wrk: Wrk;
  report: Report;
  /** When something was measured. */
  windows: Window[];
  startGateway: (options?: { engine?: string; processes?: number }) => Promise<BenchGateway>;
  /** With `--peers`: other gateways in front of the same engine. */
  startPeers: (stream: boolean) => Promise<Target[]>;
  signal: AbortSignal;
};

export type Cell = { name: string; about: string; run: (bench: Bench) => Promise<void> };

/** What load is sent to: the engine itself, the gateway, or another gateway in front of the same engine. */
export type Target = AsyncDisposable & {
  name: string;
  url: string;
  /** Its first process; null for the engine itself. */
  pid: number | null;
  /** Processes beside the first one, which get their part of the load. */
  more?: { pid: number; url: string }[];
  /** Whether the client itself must ask for ids and log-probabilities. */
  direct: boolean;
  headers?: string;
  /** So many conversations of their own. */
  lines: (count: number) => Promise<Line[]>;
  gateway?: BenchGateway;
  lastError?: () => string | undefined;
};

const nothing = () => Promise.resolve();
let names = 0;

/** A target that is asked in one protocol. */
export type Speaker = { target: Target; protocol: ProtocolName };

/** The gateway in each of these protocols, after the baseline: the engine alone in its own chat route. */
export const speakers = (bench: Bench, gateway: BenchGateway, protocols: readonly ProtocolName[]): Speaker[] => [
  { target: directTarget(bench.engine), protocol: 'chat_completions' },
  ...protocols.map((protocol) => ({ target: { ...gatewayTarget(gateway), name: protocol }, protocol })),
];

/** The baseline of each cell. */
export const directTarget = ({ url }: { url: string }): Target => ({ ...plainTarget('direct', url), pid: null });

/** Anything that answers at OpenAI's own path. */
export function plainTarget(name: string, url: string, dispose: () => Promise<void> = nothing): Target {
  const line = () => ({ path: '/v1/chat/completions', key: 'none', name: `trial-${++names}` });
  return { name, url, pid: null, direct: true, lines: (count) => Promise.resolve(Array.from({ length: count }, line)), [Symbol.asyncDispose]: dispose };
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

/** The targets in another order each time, from the given one on: what changes on the machine meanwhile hits all of them. */
export const rotated = <T>(targets: readonly T[], repeat: number): T[] => targets.map((_, i) => targets[(i + repeat - 1) % targets.length] as T);
