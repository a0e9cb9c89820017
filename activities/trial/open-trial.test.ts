import { expect, test } from 'vitest';
import { samplingOf } from './open-trial.ts';
import { parseRunConfig } from '../../core/run-config/parse-run-config.ts';

const RUN = { model: 'm', tasks: ['t'], iterations: 1, max_response_length: 64 };

test('a trial samples with its run file’s settings, and its engine enforces grammars unless the run file says `constrained_decoding: hint`', () => {
  expect(samplingOf(parseRunConfig(RUN, 'run'))).toEqual({
    temperature: 1,
    max_tokens: 64,
    constrained_decoding: 'enforce',
    keep_thinking: 'as_template',
  });
  expect(
    samplingOf(parseRunConfig({ ...RUN, sampling: { temperature: 0.7 }, constrained_decoding: 'hint' }, 'run')),
  ).toMatchObject({ temperature: 0.7, max_tokens: 64, constrained_decoding: 'hint' });
  expect(() => parseRunConfig({ ...RUN, constrained_decoding: 'off' }, 'run')).toThrow('constrained_decoding');
});
