import { expect, test } from 'vitest';
import { runConfig } from './run-config.ts';
import { trainerSettingsOf } from './trainer-settings.ts';

const settingsOf = (given: object) => trainerSettingsOf(runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1, max_response_length: 100, ...given }));

test('the trainer gets its own settings and no others of the run', () => {
  const settings = settingsOf({ objective: 'gspo', seed: 7 });
  expect(settings).toMatchObject({ objective: 'gspo', clip_ratio_low: null, clip_ratio_c: 3, rollout_is: 'token', seed: 7 });
  expect(Object.keys(settings)).not.toContain('model');
});

test('the trainer gets only the weights of a teacher’s answers, not its URL and model', () => {
  const settings = settingsOf({ teacher: { url: 'http://host:8000/v1', model: 'big' } });
  expect(settings).toMatchObject({ distillation_loss_coef: 1, loss_max_clamp: 10 });
  expect(settings).not.toHaveProperty('url');
  expect(settings).not.toHaveProperty('model');
  expect(settingsOf({})).not.toHaveProperty('loss_max_clamp');
});

test.each([
  [{ objective: 'gspo' }, 'gspo has one advantage a sequence'],
  [{ sampling: { temperature: 0.7 } }, 'temperature is 1'],
  [{ sampling: { temperature: 'agent' } }, 'temperature is 1'],
  [{ sampling: { top_p: { default: 0.9 } } }, 'top_p is 1'],
  [{ teacher: { url: 'unix:/teacher.sock', model: 'big' } }, 'the base URL'],
])('a teacher together with %j is refused', (given, message) => {
  expect(() => settingsOf({ teacher: { url: 'http://host:8000/v1', model: 'big' }, ...given })).toThrow(message);
});

test.each([
  ['one call where nothing bounds them', {}, 100],
  ['its calls', { budgets: { calls: 5 } }, 500],
  ['its tokens', { budgets: { calls: 5, tokens: 300 } }, 300],
  ['what the run file says', { loss_scale_factor: 64, budgets: { calls: 5 } }, 64],
])('Dr. GRPO’s constant is the number of tokens that a trial may sample: %s', (_, given, expected) => {
  expect(settingsOf(given).loss_scale_factor).toBe(expected);
});
