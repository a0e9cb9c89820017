import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

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
  #failures = 0;
  #failedAt: number | null = null;
  #probing: Promise<void> | null = null;
  #again = false;

  constructor(host: string, port: number) {
    this.#host = host;
    this.#port = port;
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
      const error = await refusal(this.#host, this.#port);
      if (error) this.refused(error);
      if (this.#again) await sleep(BETWEEN_PROBES_MS);
    }
  }
}

/** Returns null when the gateway takes a connection, otherwise the reason why not. */
async function refusal(host: string, port: number): Promise<Error | null> {
  const socket = connect({ host, port });
  try {
    await once(socket, 'connect', { signal: AbortSignal.timeout(PROBE_MS) });
    return null;
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  } finally {
    socket.destroy();
  }
}
