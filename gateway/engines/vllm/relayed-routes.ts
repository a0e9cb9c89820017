import { isObject, parseObject } from '../../json.ts';

/** The routes of vLLM that the gateway and the trainer use. */
const GETS = new Set(['/health', '/metrics', '/v1/models', '/weight_info', '/server_info', '/is_paused']);
const POSTS = new Set([
  '/v1/chat/completions',
  '/v1/completions',
  '/v1/chat/completions/render',
  '/v1/chat/completions/derender',
  '/inference/v1/generate',
  '/tokenize',
  '/detokenize',
  '/pause',
  '/resume',
  '/reset_prefix_cache',
  '/update_weight_version',
  '/weight_checker',
  '/v1/load_lora_adapter',
  '/v1/unload_lora_adapter',
]);
/** The fields in which requests name the folder of weights to load. */
const FOLDERS = new Map([
  ['/collective_rpc', ['kwargs', 'weights_path']],
  ['/v1/load_lora_adapter', ['lora_path']],
]);
/** The methods of vLLM's workers that load a checkpoint (`gpu-workers/trialgate_gpu/vllm_engine.py`). */
const LOADS = ['reload_weights', 'trialgate_reload_weights'];

export function isRelayedToVllm(method: 'GET' | 'POST', path: string, body: string): boolean {
  if (method === 'GET') return GETS.has(path);
  return POSTS.has(path) || (path === '/collective_rpc' && loadsWeights(body));
}

export const weightsFolderIn = (path: string): readonly string[] | null => FOLDERS.get(path) ?? null;

function loadsWeights(body: string): boolean {
  const call = parseObject(body);
  // Arguments without names could have a path that is not seen here.
  return isObject(call) && typeof call.method === 'string' && LOADS.includes(call.method) && !('args' in call);
}
