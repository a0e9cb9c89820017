import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

const PROBE_MS = 3000;
const BETWEEN_PROBES_MS = 100;
/** This host has no more ports or descriptors: a sandbox can cause that, and the gateway did not. */
const SHORTAGES = new Set(['EADDRNOTAVAIL', 'EMFILE', 'ENFILE']);

export type GatewayFailures = {
  /** Connections that the gateway's side could not take or broke off, seen by the host. */
  gatewayFailures: number;
  /** When the last of them failed, in milliseconds since the epoch; null when none did. */
  gatewayFailedAt: number | null;
};

export const NO_GATEWAY_FAILURES: GatewayFailures = { gatewayFailures: 0, gatewayFailedAt: null };

/**
 * Counts when a gateway failed one sandbox's connections. A gateway closes and resets connections of its own accord too,
 * after nonsense or an idle time, so a connection that it ended is only a reason to ask whether it still takes new ones.
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

  /** Waits for probes that are under way. */
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

/** Null when the gateway takes a connection, else why not. */
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
