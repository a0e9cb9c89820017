import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import { z } from 'zod';
import { openDatabase } from '../../store/database.ts';
import { TestPostgres } from '../../store/testing/postgres.ts';
import type { JsonObject } from '../json.ts';
import type { NodeGatewayOptions } from '../node.ts';
import { TestGateway } from './harness.ts';
import { TokenEngine } from './token-engine.ts';

/** A gateway in front of the toy engine, which can be told what to say; fresh for each test. */
export function useTokenGateway(options: Partial<NodeGatewayOptions> = {}) {
  const context = new TokenGateway();
  beforeAll(async () => {
    context.postgres = await TestPostgres.create();
    context.db = openDatabase(context.postgres.url);
  }, 60_000);
  beforeEach(async () => {
    context.toy = await new TokenEngine().start();
    await context.start({ engines: [context.toy.url], ...options });
  });
  afterEach(async () => {
    await context.gateway.close();
    await context.toy.stop();
  });
  afterAll(async () => {
    await context.db.$client.end();
    await context.postgres.close();
  });
  return context;
}

const samples = z.object({ samples: z.array(z.object({ call_ids: z.array(z.string()), loss_mask: z.array(z.number()) })) });

export class TokenGateway extends TestGateway {
  toy!: TokenEngine;

  /** Another process of the same gateway. */
  async restart(): Promise<void> {
    await this.gateway.close();
    await this.start({ engines: [this.toy.url] });
  }

  async samplesOf(trialId: string) {
    return samples.parse(await (await this.admin('GET', `/sessions/${trialId}/samples`)).json()).samples;
  }

  async json(reply: Response): Promise<JsonObject> {
    return z.record(z.string(), z.unknown()).parse(await reply.json());
  }
}
