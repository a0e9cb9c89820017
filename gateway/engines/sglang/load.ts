import { z } from 'zod';
import type { EngineConnection } from '../connection.ts';
import { getJson, getText } from '../get-json.ts';
import { samplesOf, type EngineLoad } from '../load.ts';

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

/** Counters of the requests that have ended. The hits have a sample for each place from which a prefix came. */
const COUNTERS = { queries: 'sglang:prompt_tokens_total', hits: 'sglang:cached_tokens_total' };

/** Reads the load of all schedulers, and the hits of the prefix cache where SGLang counts them (`--enable-metrics`). */
export async function readLoad(connection: EngineConnection, signal: AbortSignal): Promise<EngineLoad | null> {
  const [loads, metrics] = await Promise.all([
    getJson(connection, '/v1/loads', signal),
    getText(connection, '/metrics', signal),
  ]);
  const { data } = page.safeParse(loads);
  if (!data) return null;
  const sum = (key: keyof (typeof data.loads)[number]) => data.loads.reduce((total, load) => total + load[key], 0);
  const kvTokens = sum('max_total_num_tokens');
  return {
    running: sum('num_running_reqs'),
    waiting: sum('num_waiting_reqs'),
    kvUse: kvTokens > 0 ? sum('num_used_tokens') / kvTokens : null,
    kvTokens: kvTokens > 0 ? kvTokens : null,
    prefix: metrics === null ? null : prefixIn(metrics),
  };
}

/** Returns null before the first request has ended: a counter without a value is not on the page. */
function prefixIn(metrics: string): EngineLoad['prefix'] {
  const samples = samplesOf(metrics, new Set(Object.values(COUNTERS)));
  const sum = (name: string) => (samples.get(name) ?? []).reduce((total, { value }) => total + value, 0);
  return samples.has(COUNTERS.queries) ? { queries: sum(COUNTERS.queries), hits: sum(COUNTERS.hits) } : null;
}
