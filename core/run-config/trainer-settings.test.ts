import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { runConfig } from './run-config.ts';
import { teacher, trainerServer, trainerSettings, trainerSettingsOf, trainerShape } from './trainer-settings.ts';

const SCHEMA = join(import.meta.dirname, '../../gpu-workers/trialgate_gpu/trainer_settings.schema.json');
const RUN_FILE = join(import.meta.dirname, '../../docs/run-file.md');
/** The command that writes both files anew. */
const WRITE = 'vitest run --project fast core/run-config/trainer-settings.test.ts -u';

const settingsOf = (given: object) =>
  trainerSettingsOf(runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1, max_response_length: 100, ...given }));

test('the trainer gets its own settings and no other settings of the run file', () => {
  const settings = settingsOf({ objective: 'gspo', seed: 7 });
  expect(settings).toMatchObject({
    objective: 'gspo',
    clip_ratio_low: null,
    clip_ratio_c: 3,
    rollout_is: 'token',
    seed: 7,
  });
  expect(Object.keys(settings)).not.toContain('model');
});

test('the trainer gets the teacher’s loss coefficients, not the teacher’s URL and model', () => {
  expect(settingsOf({ teacher: { url: 'http://host:8000/v1', model: 'big' } }).teacher).toEqual({
    distillation_loss_coef: 1,
    loss_max_clamp: 10,
  });
  expect(settingsOf({}).teacher).toBeNull();
});

test(`the schema file that the Python trainer reads matches the declaration of the trainer’s settings; "${WRITE}" writes it`, async () => {
  await expect(`${JSON.stringify(z.toJSONSchema(trainerSettings), null, 2)}\n`).toMatchFileSnapshot(SCHEMA);
});

test(`docs/run-file.md lists every setting of the trainer with its default and meaning; "${WRITE}" writes the table`, async () => {
  const [begin, end] = ['<!-- begin: settings of the trainer -->', '<!-- end: settings of the trainer -->'];
  const [before, rest] = readFileSync(RUN_FILE, 'utf8').split(begin);
  const [, after] = rest?.split(end) ?? [];
  expect(after).toBeDefined();
  const table = [
    '| setting | default | meaning |',
    '|---|---|---|',
    ...rows(z.toJSONSchema(z.object({ ...trainerShape, teacher, trainer_server: trainerServer }))),
  ].join('\n');
  await expect(`${before}${begin}\n${table}\n${end}${after}`).toMatchFileSnapshot(RUN_FILE);
});

/** Returns a table row for each setting that has no settings within. */
function rows(schema: z.core.JSONSchema.BaseSchema, prefix = ''): string[] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, setting]) => {
    if (typeof setting === 'boolean') return [];
    if (setting.properties) return rows(setting, `${prefix}${name}.`);
    const { default: byDefault } = setting;
    const written =
      byDefault === undefined ? '' : `\`${typeof byDefault === 'string' ? byDefault : JSON.stringify(byDefault)}\``;
    return [`| \`${prefix}${name}\` | ${written} | ${valuesOf(setting)}${setting.description} |`];
  });
}

/** Returns the names among which a setting chooses, if it does. */
function valuesOf({ enum: own, anyOf = [] }: z.core.JSONSchema.BaseSchema): string {
  const names = own ?? anyOf.flatMap((each) => (typeof each === 'boolean' ? [] : (each.enum ?? [])));
  return names.length === 0 ? '' : `${names.map((name) => `\`${name}\``).join(', ')}. `;
}

test.each([
  [{ objective: 'gspo' }, 'gspo has one advantage a sequence'],
  [{ sampling: { temperature: 0.7 } }, 'temperature is 1'],
  [{ sampling: { temperature: 'agent' } }, 'temperature is 1'],
  [{ sampling: { top_p: { default: 0.9 } } }, 'top_p is 1'],
  [{ teacher: { url: 'unix:/teacher.sock', model: 'big' } }, 'the base URL'],
])('a run file with a teacher and %j is refused', (given, message) => {
  expect(() => settingsOf({ teacher: { url: 'http://host:8000/v1', model: 'big' }, ...given })).toThrow(message);
});

const server = { url: 'http://host:8000' };

test.each([
  [{}, 'lora_rank'],
  [{ lora_rank: 8, sampling: { temperature: 0.7 } }, 'with a `trainer_server`, temperature is 1'],
  [{ lora_rank: 8, head_dtype: 'float32' }, 'head_dtype'],
  [{ lora_rank: 8, enable_router_replay: true }, 'replays no experts of an engine'],
  [{ lora_rank: 8, trainer_server: { url: 'unix:/server.sock' } }, 'the base URL'],
  [{ lora_rank: 8, trainer_server: { url: 'http://user:key@host:8000' } }, 'without a key'],
])('a run file with a trainer server and %j is refused', (given, message) => {
  expect(() => settingsOf({ trainer_server: server, ...given })).toThrow(message);
});

test('the trainer gets the URL of the trainer server, and no key', () => {
  expect(settingsOf({ trainer_server: server, lora_rank: 8 }).trainer_server).toEqual({
    ...server,
    model: null,
    timeout: 3600,
  });
  expect(() => settingsOf({ trainer_server: { ...server, key: 'tml-1' }, lora_rank: 8 })).toThrow('key');
});

test.each([
  ['one call where nothing bounds them', {}, 100],
  ['its calls', { budgets: { calls: 5 } }, 500],
  ['its tokens', { budgets: { calls: 5, tokens: 300 } }, 300],
  ['what the run file says', { loss_scale_factor: 64, budgets: { calls: 5 } }, 64],
])(
  'Dr. GRPO’s `loss_scale_factor` is the most tokens that a trial may sample, or what the run file says: %s',
  (_, given, expected) => {
    expect(settingsOf(given).loss_scale_factor).toBe(expected);
  },
);

test('the trainer keeps every checkpoint of an adapter from which an engine may load it again', () => {
  expect(settingsOf({ max_staleness: 4 }).keep_checkpoints).toBe(2);
  expect(settingsOf({ max_staleness: 4, lora_rank: 8 }).keep_checkpoints).toBe(6);
  expect(settingsOf({ max_staleness: 4, lora_rank: 8, keep_checkpoints: 9 }).keep_checkpoints).toBe(9);
});
