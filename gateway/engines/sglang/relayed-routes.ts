import { parseObject } from '../../json.ts';

/** The routes of SGLang that the gateway and the trainer use. */
const GETS = new Set(['/health', '/ready', '/v1/loads', '/metrics', '/v1/models', '/model_info', '/server_info']);
const POSTS = new Set([
  '/generate',
  '/v1/chat/completions',
  '/tokenize',
  '/detokenize',
  '/pause_generation',
  '/continue_generation',
  '/update_weights_from_disk',
  '/update_weight_version',
  '/load_lora_adapter',
  '/unload_lora_adapter',
]);
/** The fields in which requests name the folder of weights to load. */
const FOLDERS = new Map([
  ['/update_weights_from_disk', ['model_path']],
  ['/load_lora_adapter', ['lora_path']],
]);

export function isRelayedToSglang(method: 'GET' | 'POST', path: string, body: string): boolean {
  if (method === 'GET') return GETS.has(path);
  // Its other actions change the weights.
  return POSTS.has(path) || (path === '/weights_checker' && parseObject(body)?.action === 'checksum');
}

export const weightsFolderIn = (path: string): readonly string[] | null => FOLDERS.get(path) ?? null;
