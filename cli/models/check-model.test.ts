import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { fakeHub } from '../../tests/support/fakes/fake-hub.ts';
import { temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { EXIT } from '../exit.ts';
import { INSTALLS } from '../folders.ts';
import { main } from '../main.ts';
import { describe, verdict } from './check-model.ts';

const withPython = test.skipIf(!existsSync(INSTALLS.python));
const SIZES = { num_hidden_layers: 4, hidden_size: 64, intermediate_size: 64, vocab_size: 128 };
const GEMMA = { model_type: 'gemma2', ...SIZES };

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});

/** Writes a model's configuration, without weights. */
async function configured(folder: string, config: Record<string, unknown>): Promise<string> {
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'config.json'), JSON.stringify(config));
  return folder;
}

/** Runs `check-model`, and returns its exit code and what it printed. */
async function checked(home: string, ...given: string[]): Promise<{ code: number; out: string; err: string }> {
  const out: string[] = [];
  const err: string[] = [];
  vi.spyOn(console, 'log').mockImplementation((line: string) => void out.push(line));
  vi.spyOn(console, 'error').mockImplementation((line: string) => void err.push(line));
  const code = await main(['check-model', ...given, '--home', home]);
  return { code, out: out.join('\n'), err: err.join('\n') };
}

withPython(
  'a model that can be trained is described, and a small one of it is compared with plain PyTorch',
  async () => {
    await using folder = await temporaryHome();
    const model = await configured(join(folder.home, 'gemma'), GEMMA);
    const { code, out } = await checked(folder.home, model);
    expect(code).toBe(EXIT.done);
    expect(out).toContain(`${model} can be trained`);
    expect(out).toMatch(/family +gemma2 \(Gemma2ForCausalLM\), [\d,]+ parameters/);
    expect(out).toMatch(/attention +2 layers of sliding_attention, 2 layers of full_attention, with a window of 4096/);
    expect(out).toMatch(/head .*logits capped at 30/);
    expect(out).toMatch(/ranks +FSDP2 divides it: checked with one rank, .* by (0|\d\.\de-\d+) of the norm/);
    expect(out).toMatch(
      /small model +log-probabilities in packs .* by (0|\d\.\de-\d+) nats.* of an adapter by \d\.\de-\d+/,
    );
  },
);

withPython('a model that cannot be trained ends with the reason and exit code 2, as `train` refuses it', async () => {
  await using folder = await temporaryHome();
  const model = await configured(join(folder.home, 'mamba'), { model_type: 'mamba', num_hidden_layers: 2 });
  const { code, out, err } = await checked(folder.home, model, '--json');
  expect(code).toBe(EXIT.badInput);
  expect(err).toMatch(/^error: model .*mamba \(mamba\) cannot be trained: .* keep a state .*; choose another model$/);
  expect(JSON.parse(out)).toMatchObject({ reason: err.replace('error: ', ''), deviations: null });
});

withPython('a folder without a configuration and a name that nobody has are refused', async () => {
  await using folder = await temporaryHome();
  await using hub = await fakeHub({});
  for (const name of ['HF_HUB_OFFLINE', 'HF_HOME', 'HF_HUB_CACHE']) vi.stubEnv(name, undefined);
  const bare = await checked(folder.home, folder.home);
  expect(bare).toMatchObject({ code: EXIT.badInput, out: '' });
  expect(bare.err).toContain('has no config.json');
  const unknown = await checked(folder.home, 'someone/unlike-any-other-name');
  expect(hub.asked).toHaveLength(1);
  expect(unknown.code).toBe(EXIT.badInput);
  expect(unknown.err).toContain('there is no model someone/unlike-any-other-name');
});

withPython('a hub that fails when it is asked for the configuration ends with exit code 3', async () => {
  await using folder = await temporaryHome();
  for (const name of ['HF_HOME', 'HF_HUB_CACHE']) vi.stubEnv(name, undefined);
  vi.stubEnv('HF_HUB_OFFLINE', '1');
  const { code, err } = await checked(folder.home, 'org/gemma');
  expect(code).toBe(EXIT.missingPrerequisite);
  expect(err).toMatch(/^error: /);
});

withPython('of a multimodal model, its text model is described, and the parts that are kept are named', async () => {
  await using folder = await temporaryHome();
  const model = await configured(join(folder.home, 'gemma'), { model_type: 'gemma3', text_config: SIZES });
  const { code, out } = await checked(folder.home, model, '--no-run');
  expect(code).toBe(EXIT.done);
  expect(out).toMatch(/family +gemma3 \(Gemma3ForConditionalGeneration\), [\d,]+ parameters in its text model/);
  expect(out).toMatch(/multimodal +its text model is trained, .* vision_config: kept/);
});

test('a deviation that is not finite is said in words', () => {
  const deviations = {
    packed_alone: null,
    alone_eager: 0,
    gradient: null,
    ranks_gradient: null,
    lora_gradient: null,
    no_ranks: null,
  };
  const lines = describe({
    ...{
      model: 'm',
      reason: 'why',
      family: 'llama',
      architecture: null,
      kept: [],
      parameters: 1,
      attention: {},
      window: null,
    },
    ...{
      experts: null,
      replays: null,
      logit_scale: null,
      logit_cap: null,
      tied_head: null,
      lora: null,
      vllm: null,
      not_run: null,
    },
    deviations,
  }).join('\n');
  expect(lines).toContain('differ from those alone by a number that is not finite nats');
  expect(lines).toContain('ranks        one alone: its gradient differs by a number that is not finite');
});

withPython(
  'a downloaded model is found by its name in the deployment’s cache, and with --json the finding is printed as it is, without a small model if --no-run forbids it',
  async () => {
    await using folder = await temporaryHome();
    for (const name of ['HF_HOME', 'HF_HUB_CACHE']) vi.stubEnv(name, undefined);
    const cached = join(folder.home, 'cache/huggingface/hub/models--org--gemma');
    await configured(join(cached, 'snapshots/abc'), GEMMA);
    await writeFile(join(cached, 'snapshots/abc/model.safetensors'), '');
    await mkdir(join(cached, 'refs'));
    await writeFile(join(cached, 'refs/main'), 'abc');
    const { code, out } = await checked(folder.home, 'org/gemma', '--no-run', '--json');
    expect(code).toBe(EXIT.done);
    const found = JSON.parse(out);
    expect(found).toMatchObject({
      model: 'org/gemma',
      reason: null,
      attention: { sliding_attention: 2, full_attention: 2 },
      logit_cap: 30,
      lora: ['all-linear'],
      deviations: null,
    });
    const sound = 'org/gemma: nothing in its configuration speaks against training it; ';
    expect(verdict(found)).toBe(`${sound}no small model was tried`);
    // A small model that was tried and did not run is not called untried.
    const failed = { ...found, not_run: 'no small model of its configuration runs (ValueError: sizes)' };
    expect(verdict(failed)).toBe(`${sound}a small model was tried and did not run`);
    expect(describe(failed).join('\n')).toContain(failed.not_run);
  },
);
