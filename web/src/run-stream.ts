import { spread } from './spread.ts';
import { TrialgateApiError, type TrialgateClient } from '../../clients/typescript/client.ts';

type Options = {
  client: TrialgateClient;
  runId: string;
  /** Called when something of the run has changed. */
  onChange: () => void;
  /** Called when changes are no longer told. */
  onCut: () => void;
};

const AGAIN_MS = 10_000;

/**
 * Hears from the gateway when something of a run changes, while the tab is visible: a browser keeps few connections to one address. After a
 * cut it goes on from the last event.
 */
export class RunStream {
  readonly runId: string;
  /** True while each change is told. */
  isLive = false;
  readonly #options: Options;
  #last: string | undefined;
  #request: AbortController | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isClosed = false;

  constructor(options: Options) {
    this.#options = options;
    this.runId = options.runId;
    document.addEventListener('visibilitychange', this.#seen);
    this.#seen();
  }

  close(): void {
    this.#isClosed = true;
    document.removeEventListener('visibilitychange', this.#seen);
    clearTimeout(this.#timer);
    this.#request?.abort();
  }

  readonly #seen = (): void => {
    clearTimeout(this.#timer);
    if (document.hidden) this.#request?.abort();
    else if (this.#request === null) void this.#listen();
  };

  async #listen(): Promise<void> {
    const { client, runId, onChange, onCut } = this.#options;
    const request = new AbortController();
    this.#request = request;
    let isRefused = false;
    try {
      for await (const { name, id } of client.runEvents(runId, { after: this.#last, signal: request.signal })) {
        // What the view has was read before the first event.
        const isNew = name === 'changed' || this.#last === undefined;
        this.isLive = true;
        this.#last = id;
        if (isNew) onChange();
      }
    } catch (error) {
      // A Worker sends no events, and why a run cannot be read the view learns itself.
      isRefused = error instanceof TrialgateApiError && (error.status < 500 || error.status === 501);
    }
    request.abort();
    this.#request = null;
    const wasLive = this.isLive;
    this.isLive = false;
    if (this.#isClosed) return;
    if (wasLive) onCut();
    if (!isRefused && !document.hidden) this.#timer = setTimeout(this.#seen, AGAIN_MS + spread());
  }
}
