import type { EngineConnection } from '../connection.ts';
import { getText } from '../get-json.ts';
import { samplesOf, type EngineLoad, type Sample } from '../load.ts';

const NAMES = {
  running: 'vllm:num_requests_running',
  waiting: 'vllm:num_requests_waiting',
  use: 'vllm:kv_cache_usage_perc',
  queries: 'vllm:prefix_cache_queries_total',
  hits: 'vllm:prefix_cache_hits_total',
  cache: 'vllm:cache_config_info',
};

/** Reads the load from vLLM's metrics. A server with data parallelism has a sample for each of its engines. */
export async function readLoad(connection: EngineConnection, signal: AbortSignal): Promise<EngineLoad | null> {
  const page = await getText(connection, '/metrics', signal);
  if (page === null) return null;
  const samples = samplesOf(page, new Set(Object.values(NAMES)));
  const of = (name: keyof typeof NAMES): readonly Sample[] => samples.get(NAMES[name]) ?? [];
  const sum = (name: keyof typeof NAMES) => of(name).reduce((total, { value }) => total + value, 0);
  if (of('running').length === 0) return null;
  const sizes = of('cache').map(sizeOf);
  return {
    running: sum('running'),
    waiting: sum('waiting'),
    kvUse: of('use').length === 0 ? null : sum('use') / of('use').length,
    kvTokens: sizes.length === 0 || sizes.includes(0) ? null : sizes.reduce((total, size) => total + size, 0),
    prefix: of('queries').length === 0 ? null : { queries: sum('queries'), hits: sum('hits') },
  };
}

/** Returns the size in tokens, or 0 when it is unknown. For models with several kinds of layers it is not that of all blocks, and newer versions name it. */
function sizeOf({ labels }: Sample): number {
  const [tokens, blocks, blockSize] = ['kv_cache_size_tokens', 'num_gpu_blocks', 'block_size'].map((name) =>
    Number(labels.get(name)),
  );
  return tokens || (blocks ?? 0) * (blockSize ?? 0) || 0;
}
