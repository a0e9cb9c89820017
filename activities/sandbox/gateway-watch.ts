import { connect } from 'node:net';
import { setImmediate as turnOfTheEventLoop, setTimeout as sleep } from 'node:timers/promises';

const PROBE_MS = 3000;
const BETWEEN_PROBES_MS = 100;
/** These errors mean that this host has no more ports or descriptors. A sandbox can cause that, so the gateway is not at fault. */
const SHORTAGES = new Set(['EADDRNOTAVAIL', 'EMFILE', 'ENFILE']);

export type GatewayFailures = {
  /** The number of connections that the gateway's side refused or broke off, as seen by the host. */
  gatewayFailures: number;
  /** The time of the last failure, in milliseconds since the epoch. It is null when there was none. */
  gatewayFailedAt: number | null;
};

export const NO_GATEWAY_FAILURES: GatewayFailures = { gatewayFailures: 0, gatewayFailedAt: null };

/**
 * Counts the gateway's failures to serve one sandbox's connections. A gateway also closes and resets connections on purpose,
 * after invalid input or an idle time. A connection that it ended is therefore only a reason to check whether it takes new ones.
 */
export class GatewayWatch {
  readonly #host: string;
  readonly #port: number;
  readonly #probeMs: number;
  #failures = 0;
  #failedAt: number | null = null;
  #probing: Promise<void> | null = null;
  #again = false;

  constructor(host: string, port: number, probeMs = PROBE_MS) {
    this.#host = host;
    this.#port = port;
    this.#probeMs = probeMs;
  }

  refused({ code = '' }: NodeJS.ErrnoException): void {
    if (SHORTAGES.has(code)) return;
    this.#failures += 1;
    this.#failedAt = Date.now();
  }

  ended(): void {
    this.#again = true;
    this.#probing ??= this.#probe().finally(() => (this.#probing = null));
  }

  /** Waits for the probes that are still running. */
  async failures(): Promise<GatewayFailures> {
    await this.#probing;
    return { gatewayFailures: this.#failures, gatewayFailedAt: this.#failedAt };
  }

  /** Probes once for all connections that ended together. */
  async #probe(): Promise<void> {
    while (this.#again) {
      this.#again = false;
      const error = await refusal(this.#host, this.#port, this.#probeMs);
      if (error) this.refused(error);
      if (this.#again) await sleep(BETWEEN_PROBES_MS);
    }
  }
}

/** Returns null when the gateway takes a connection, otherwise the reason why not. Only a second timeout counts: the first one can have a cause on this host. */
async function refusal(host: string, port: number, ms: number): Promise<Error | null> {
  const first = await probe(host, port, ms);
  return first === 'timed_out' ? asError(await probe(host, port, ms)) : first;
}

const asError = (result: ProbeResult): Error | null =>
  result === 'timed_out' ? new Error('the gateway took no connection in time') : result;

type ProbeResult = Error | 'timed_out' | null;

async function probe(host: string, port: number, ms: number): Promise<ProbeResult> {
  const socket = connect({ host, port });
  let failure: Error | null = null;
  const over = Promise.withResolvers<void>();
  const timer = setTimeout(over.resolve, ms);
  socket
    .once('error', (error) => (failure = error))
    .once('connect', over.resolve)
    .once('close', over.resolve);
  try {
    await over.promise;
    // If this process was stopped for a while, its timers run before it sees what happened to its sockets.
    await turnOfTheEventLoop();
    return failure ?? (socket.connecting ? 'timed_out' : null);
  } finally {
    clearTimeout(timer);
    socket.destroy();
  }
}
