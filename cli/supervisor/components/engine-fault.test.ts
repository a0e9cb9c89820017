import { expect, test } from 'vitest';
import { engineFault } from './engine-fault.ts';

/** Ends of logs of vLLM 0.32. */
test.each([
  [
    'a wrong argument',
    `                     [model_tag]
api_server.py: error: unrecognized arguments: --foo`,
    'unrecognized arguments: --foo',
  ],
  [
    'a context that is too long',
    `pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, User-specified max_model_len (100000) is greater than the derived max_model_len (max_position_embeddings=8192.0). [type=value_error, input_value=ArgsKwargs((), {'model': 'm'}), input_type=ArgsKwargs]
    For further information visit https://errors.pydantic.dev/2.14/v/value_error`,
    'User-specified max_model_len (100000) is greater than the derived max_model_len (max_position_embeddings=8192.0).',
  ],
  [
    'a folder without a model',
    `  Value error, Invalid repository ID or local directory specified: '/models/none'.
Please verify the following requirements:
 [type=value_error, input_value=ArgsKwargs((), {'model': 'm'}), input_type=ArgsKwargs]`,
    "Invalid repository ID or local directory specified: '/models/none'.",
  ],
  [
    'a parser that it does not have',
    "KeyError: 'invalid tool call parser: nothere (chose from { hermes,hf })'",
    'invalid tool call parser: nothere (chose from { hermes,hf })',
  ],
  [
    'a folder without weights',
    `RuntimeError: Cannot find any model weights with \`/models/none\`
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}`,
    'Cannot find any model weights with `/models/none`',
  ],
  [
    'a hub that is away',
    "  Value error, Invalid repository ID or local directory specified: 'org/model'.\nPlease verify the following requirements:",
    null,
  ],
  ['a machine without memory', 'RuntimeError: Engine core initialization failed. See root cause above.', null],
])(
  'the log of an engine that cannot start for %s has vLLM’s own sentence, or none when another start may succeed',
  (_, log, sentence) => {
    expect(engineFault(log.split('\n'))).toBe(sentence);
  },
);
