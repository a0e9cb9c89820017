import { expect, test } from 'vitest';
import { REPOSITORY } from '../core/repository.ts';
import { foldersInCycles, importsOf, sourceFiles } from '../tests/support/oracles/folder-imports.ts';

const files = () => sourceFiles(`${REPOSITORY}/gateway`);

test('no folder of the gateway depends on itself over others', () => {
  const imports = importsOf(files());
  expect([...imports.keys()].toSorted()).toEqual([
    'calls',
    'conversations',
    'engines',
    'http',
    'protocols',
    'record',
    'relay',
    'runtimes',
    'the shared files',
  ]);
  expect(foldersInCycles(imports)).toEqual([]);
});

test('a cycle of two folders is found, types included', () => {
  const imports = importsOf([
    ['http/app.ts', "import { answer } from '../calls/answer.ts';"],
    ['calls/answer.ts', "import type { App } from '../http/app.ts';"],
  ]);
  expect(foldersInCycles(imports)).toEqual(['calls', 'http']);
});

/** Routes and fields that vLLM has and OpenAI does not, and its name. */
const OF_VLLM =
  /\bvllm\b(?!-router)|\/(?:de)?tokenize\b|\/inference\/v1|\/(?:de)?render\b|weight_info|cache_salt|return_token_ids|prompt_token_ids|weight_versions|sampling_mask|structured_outputs|guided_\w+|structural_tag|output_mode|sampling_params|generate_response|add_special_tokens|stop_token_ids|ignore_eos|skip_special_tokens|include_stop_str_in_output|allowed_token_ids|bad_words|logits_processors|use_beam_search|routed_experts|max_model_len/gi;

/** The other files that have such a name, each with the reason. */
const ALLOWED: Record<string, string[]> = {
  // The registry of engines.
  'engines/all.ts': ['vllm'],
  // Sentences for people, which name the options of their engine.
  'calls/sampling/explain-untrainable.ts': ['bad_words', 'vllm'],
  // The names by which agents of OpenAI's protocols ask for ids and get them, here as in vLLM.
  'engines/completion.ts': ['prompt_token_ids', 'return_token_ids', 'vllm'],
  // Fields of the gateway's own routes.
  'http/models.ts': ['max_model_len'],
  'http/openapi/operations.ts': ['routed_experts'],
  'http/openapi/schemas.ts': ['prompt_token_ids', 'routed_experts', 'sampling_mask'],
  'http/sessions/session-record.ts': ['prompt_token_ids', 'routed_experts', 'sampling_mask'],
};

/** SGLang's native routes are named alike in part. */
const ENGINES_OWN = ['engines/vllm/', 'engines/sglang/'];
/** Routes and fields that SGLang alone has, and its name. */
const OF_SGLANG =
  /\bsglang\b|model_info|server_info|separate_reasoning|parse_function_call|meta_info|sglext|max_new_tokens|pause_generation|continue_generation|abort_request|logprob_start_len|matched_stop/gi;

test('only engines/vllm/ names a route or field of vLLM', () => {
  const named = files()
    .filter(([file]) => !ENGINES_OWN.some((folder) => file.startsWith(folder)))
    .map(([file, text]): [string, string[]] => [
      file,
      [...new Set([...text.matchAll(OF_VLLM)].map(([name]) => name.toLowerCase()))].toSorted(),
    ]);
  expect(Object.fromEntries(named.filter(([, names]) => names.length > 0))).toEqual(ALLOWED);
});

test('only engines/sglang/, the registry and sentences for people name a route or field of SGLang', () => {
  const named = files().filter(
    ([file, text]) => !ENGINES_OWN.some((folder) => file.startsWith(folder)) && text.match(OF_SGLANG) !== null,
  );
  expect(named.map(([file]) => file)).toEqual(['engines/all.ts', 'calls/sampling/explain-untrainable.ts']);
});
