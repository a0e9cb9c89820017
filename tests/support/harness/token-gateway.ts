import { afterEach, beforeEach } from 'vitest';
import { z } from 'zod';
import { useDatabase } from './use-database.ts';
import type { JsonObject } from '../../../gateway/json.ts';
import type { NodeGatewayOptions } from '../../../gateway/runtimes/node/start-gateway.ts';
import { share, TestGateway } from './gateways.ts';
import { SglangEngine } from '../fakes/sglang/sglang-engine.ts';
import { TokenEngine } from '../fakes/token-engine.ts';
import type { ToyEngine } from '../fakes/toy-engine.ts';

/** True when tests that do not care about the kind of engine run in front of one that answers as SGLang does (vitest.config.ts). */
const OVER_SGLANG = process.env['TRIALGATE_TEST_ENGINE'] === 'sglang';

/** It takes prompts and gives replies of any length, as the other toy does. */
const LENIENT = { thinks: true, hasLimits: false, context: 10_000_000 };

const likeVllm = () => new TokenGateway(() => new TokenEngine());
const likeAny = (): TokenGateway<ToyEngine> =>
  OVER_SGLANG ? new TokenGateway(() => Object.assign(new SglangEngine(), LENIENT)) : likeVllm();

/** Gives each test a fresh gateway in front of the toy engine, whose replies the test sets. */
export const useTokenGateway = (options: Partial<NodeGatewayOptions> = {}): TokenGateway =>
  eachWithOwn(likeVllm(), options);

/** Does the same, for a file that runs over each kind of engine. */
export const useToyGateway = (options: Partial<NodeGatewayOptions> = {}): TokenGateway<ToyEngine> =>
  eachWithOwn(likeAny(), options);

/** Does the same, but each test starts its own by `serve`. */
export const useTokenGateways = (): TokenGateway => closed(likeVllm());
export const useToyGateways = <E extends ToyEngine>(create: () => E): TokenGateway<E> =>
  closed(new TokenGateway(create));

/** Gives all tests of a file one gateway, and each a fresh toy engine, as `useSharedGateway` does. */
export const useSharedTokenGateway = (options: Partial<NodeGatewayOptions> = {}): TokenGateway =>
  share(useDatabase(likeVllm()), options);

/** Does the same, for a file that runs over each kind of engine. */
export const useSharedToyGateway = (options: Partial<NodeGatewayOptions> = {}): TokenGateway<ToyEngine> =>
  share(useDatabase(likeAny()), options);

function eachWithOwn<E extends ToyEngine>(gateway: TokenGateway<E>, options: Partial<NodeGatewayOptions>) {
  const context = closed(gateway);
  beforeEach(() => context.serve({}, options));
  return context;
}

function closed<E extends ToyEngine>(gateway: TokenGateway<E>): TokenGateway<E> {
  const context = useDatabase(gateway);
  afterEach(async () => {
    await context.gateway.close();
    await context.toy.stop();
  });
  return context;
}

const samples = z.object({
  samples: z.array(z.object({ call_ids: z.array(z.string()), loss_mask: z.array(z.number()) })),
});

export class TokenGateway<E extends ToyEngine = TokenEngine> extends TestGateway {
  toy!: E;
  readonly #create: () => E;

  constructor(create: () => E) {
    super();
    this.#create = create;
  }

  async serve(engine: Partial<E> = {}, options: Partial<NodeGatewayOptions> = {}): Promise<void> {
    await this.openEngine();
    Object.assign(this.toy, engine);
    await this.start(options);
  }

  override async openEngine(): Promise<void> {
    this.toy = await this.#create().start();
  }

  override renewEngine(): void {
    this.toy = this.#create().takeOver(this.toy);
  }

  override async closeEngine(): Promise<void> {
    await this.toy?.stop();
  }

  protected override get engineUrl(): string {
    return this.toy.url;
  }

  async samplesOf(trialId: string) {
    return samples.parse(await (await this.admin('GET', `/sessions/${trialId}/samples`)).json()).samples;
  }

  async json(reply: Response): Promise<JsonObject> {
    return z.record(z.string(), z.unknown()).parse(await reply.json());
  }
}
