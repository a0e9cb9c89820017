import { afterEach, beforeEach } from 'vitest';
import { z } from 'zod';
import { useDatabase } from './use-database.ts';
import type { JsonObject } from '../../../gateway/json.ts';
import type { NodeGatewayOptions } from '../../../gateway/node.ts';
import { share, TestGateway } from './gateways.ts';
import { TokenEngine } from '../fakes/token-engine.ts';

/** Gives each test a fresh gateway in front of the toy engine, whose replies the test sets. */
export function useTokenGateway(options: Partial<NodeGatewayOptions> = {}): TokenGateway {
  const context = useTokenGateways();
  beforeEach(() => context.serve({}, options));
  return context;
}

/** Does the same, but each test starts its own by `serve`. */
export function useTokenGateways(): TokenGateway {
  const context = useDatabase(new TokenGateway());
  afterEach(async () => {
    await context.gateway.close();
    await context.toy.stop();
  });
  return context;
}

/** Gives all tests of a file one gateway, and each a fresh toy engine, as `useSharedGateway` does. */
export const useSharedTokenGateway = (options: Partial<NodeGatewayOptions> = {}): TokenGateway =>
  share(useDatabase(new TokenGateway()), options);

const samples = z.object({
  samples: z.array(z.object({ call_ids: z.array(z.string()), loss_mask: z.array(z.number()) })),
});

export class TokenGateway extends TestGateway {
  toy!: TokenEngine;

  async serve(engine: Partial<TokenEngine> = {}, options: Partial<NodeGatewayOptions> = {}): Promise<void> {
    await this.openEngine();
    Object.assign(this.toy, engine);
    await this.start(options);
  }

  override async openEngine(): Promise<void> {
    this.toy = await new TokenEngine().start();
  }

  override renewEngine(): void {
    this.toy = new TokenEngine().takeOver(this.toy);
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
