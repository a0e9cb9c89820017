import { startGateway } from '../../../gateway/runtimes/node/start-gateway.ts';
import { UndiciConnection } from '../../../gateway/runtimes/node/engine-connection.ts';
import { onSmallModel, type Place } from '../scenarios/exact-trial.ts';
import { Replies } from '../scenarios/generated.ts';
import { ListeningProxy } from '../fakes/listening-proxy.ts';

const ADMIN_KEY = 'admin-key-of-the-tests';

export type ObservedPlace = Place & { unmatched: () => string[]; close: () => Promise<void> };

/** Starts a gateway before a vLLM with the small model, with a listening proxy between them. */
export async function gatewayBeforeVllm(url: string, databaseUrl: string, signal: AbortSignal): Promise<ObservedPlace> {
  const engine = new UndiciConnection(url);
  const replies = new Replies();
  const proxy = await new ListeningProxy(engine, (generated) => replies.add(generated)).start();
  const gateway = await startGateway({
    host: '127.0.0.1',
    port: 0,
    engines: [proxy.url],
    databaseUrl,
    adminKey: ADMIN_KEY,
    secret: 'a secret of sixteen characters',
    settings: { holdMs: 60_000 },
  });
  return {
    ...onSmallModel({ url: gateway.url, adminKey: ADMIN_KEY }, engine, replies.take, signal),
    unmatched: () => (replies.left > 0 ? [`the engine gave ${replies.left} replies that no record holds`] : []),
    close: async () => {
      await gateway.close();
      await proxy.stop();
      await engine.close();
    },
  };
}
