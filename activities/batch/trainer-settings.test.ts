import { expect, test } from 'vitest';
import { runConfig } from '../run-config.ts';
import { trainerSettingsOf } from './trainer-settings.ts';

const settingsOf = (given: object) => trainerSettingsOf(runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1, max_response_length: 100, ...given }));

test("the trainer gets its own settings and no other of the run's", () => {
  const settings = settingsOf({ objective: 'gspo', seed: 7 });
  expect(settings).toMatchObject({ objective: 'gspo', clip_ratio_low: null, clip_ratio_c: 3, rollout_is: 'token', seed: 7 });
  expect(Object.keys(settings)).not.toContain('model');
});

test.each([
  ['one call where nothing bounds them', {}, 100],
  ['its calls', { budgets: { calls: 5 } }, 500],
  ['its tokens', { budgets: { calls: 5, tokens: 300 } }, 300],
  ['what the run file says', { loss_scale_factor: 64, budgets: { calls: 5 } }, 64],
])("Dr. GRPO's constant is a trial's: %s", (_, given, expected) => {
  expect(settingsOf(given).loss_scale_factor).toBe(expected);
});
