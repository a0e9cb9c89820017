/** Returns a page of metrics as vLLM 0.32 writes it, of one engine with 16 tokens a block. */
export function vllmMetrics({ running = 0, waiting = 0, kvUse = 0, blocks = 100, queries = 0, hits = 0 } = {}): string {
  const labels = '{engine="0",model_name="policy"}';
  const info = `{block_size="16",cache_dtype="auto",engine="0",kv_cache_size_tokens="None",num_gpu_blocks="${blocks}",sliding_window="None"}`;
  return [
    '# HELP vllm:num_requests_running Number of requests in model execution batches.',
    '# TYPE vllm:num_requests_running gauge',
    `vllm:num_requests_running${labels} ${running.toFixed(1)}`,
    '# TYPE vllm:num_requests_waiting gauge',
    `vllm:num_requests_waiting${labels} ${waiting.toFixed(1)}`,
    '# TYPE vllm:kv_cache_usage_perc gauge',
    `vllm:kv_cache_usage_perc${labels} ${kvUse}`,
    '# TYPE vllm:prefix_cache_queries_total counter',
    `vllm:prefix_cache_queries_total${labels} ${queries.toExponential()}`,
    '# TYPE vllm:prefix_cache_queries_created gauge',
    `vllm:prefix_cache_queries_created${labels} 1.7640324e+09`,
    '# TYPE vllm:prefix_cache_hits_total counter',
    `vllm:prefix_cache_hits_total${labels} ${hits.toExponential()}`,
    '# TYPE vllm:cache_config_info gauge',
    `vllm:cache_config_info${info} 1.0`,
    '',
  ].join('\n');
}
