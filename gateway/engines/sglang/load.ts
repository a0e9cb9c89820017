import { z } from 'zod';
import type { EngineConnection } from '../connection.ts';
import { getJson } from '../get-json.ts';
import type { EngineLoad } from '../load.ts';

const count = z.number().nonnegative();
const page = z.object({
  loads: z
    .array(
      z.object({
        num_running_reqs: count,
        num_waiting_reqs: count,
        num_used_tokens: count,
        max_total_num_tokens: count,
      }),
    )
    .min(1),
});

/** Reads the load of all schedulers. Nothing but SGLang's metrics counts the hits of its prefix cache. */
export async function readLoad(connection: EngineConnection, signal: AbortSignal): Promise<EngineLoad | null> {
  const { data } = page.safeParse(await getJson(connection, '/v1/loads', signal));
  if (!data) return null;
  const sum = (key: keyof (typeof data.loads)[number]) => data.loads.reduce((total, load) => total + load[key], 0);
  const kvTokens = sum('max_total_num_tokens');
  return {
    running: sum('num_running_reqs'),
    waiting: sum('num_waiting_reqs'),
    kvUse: kvTokens > 0 ? sum('num_used_tokens') / kvTokens : null,
    kvTokens: kvTokens > 0 ? kvTokens : null,
    prefix: null,
  };
}
