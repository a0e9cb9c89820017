import type { Discovery, DiscoveryOptions, Finding } from '../../../gateway/runtimes/node/discovery/discovery.ts';

/** What a discovery has found since it was created. */
export class Followed {
  readonly findings: Finding[] = [];
  readonly #stopping = new AbortController();
  readonly #end: Promise<void>;

  constructor(discovery: Discovery, options: DiscoveryOptions) {
    this.#end = this.#follow(discovery, options).catch((error: unknown) => {
      if (!this.#stopping.signal.aborted) throw error;
    });
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#end;
  }

  async #follow({ watch }: Discovery, options: DiscoveryOptions): Promise<void> {
    for await (const finding of watch(options, this.#stopping.signal) ?? []) this.findings.push(finding);
  }
}
