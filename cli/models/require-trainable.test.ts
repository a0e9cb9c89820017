import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { holdFreePort } from '../../core/free-port.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import { IN_GATE } from '../../tests/support/harness/in-gate.ts';
import { temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { INSTALLS } from '../folders.ts';
import { identify } from '../supervisor/processes.ts';
import { writeState } from '../supervisor/state.ts';
import { requireTrainable } from './require-trainable.ts';

const { signal } = new AbortController();
const withoutPython = !existsSync(INSTALLS.python);
const withPython = test.skipIf(withoutPython);

/** Checks a run of a small Llama, of which only the configuration is there. This process stands for a deployment with a GPU worker on a CPU. */
async function checked(settings: Record<string, unknown>, size: Record<string, unknown> = {}): Promise<string | null> {
  await using folder = await temporaryHome();
  const small = { model_type: 'llama', hidden_size: 16, intermediate_size: 16, num_hidden_layers: 1, vocab_size: 8 };
  const heads = { num_attention_heads: 2, num_key_value_heads: 2 };
  await writeFile(join(folder.home, 'config.json'), JSON.stringify({ ...small, ...heads, ...size }));
  const since = new Date().toISOString();
  const about = { process: null, address: '', since, restarts: 0, detail: null, log: null, stopSignal: 'SIGTERM' };
  writeState(folder.home, {
    supervisor: identify(process.pid),
    status: 'ready',
    failure: null,
    ports: {},
    engines: [],
    settings: null,
    ranks: {
      device: 'cpu',
      dtype: 'float32',
      count: 1,
      offload: false,
      recompute: false,
      packTokens: null,
      gpus: null,
    },
    notes: [],
    components: [{ name: 'gpu-worker', status: 'ready', ...about }],
  });
  const config = runConfig.parse({ model: folder.home, tasks: ['t'], iterations: 1, ...settings });
  return await requireTrainable(config, { home: folder.home, trainer_keys: [] }, signal);
}

withPython(
  '`target_modules` that the model does not have are refused before a run starts, with the layers that it has',
  async () => {
    await expect(checked({ lora_rank: 4, target_modules: ['c_attn'] })).rejects.toThrow(
      /`target_modules` .*c_attn.*: a llama has down_proj, .*q_proj.*Name some of these/,
    );
  },
);

// `check_trainer_test.py` shows the same without a start of the program.
test.skipIf(withoutPython || process.env[IN_GATE])(
  'a model that this machine has no memory to train is refused before a run starts, with the sum',
  async () => {
    const large = { hidden_size: 65_536, intermediate_size: 262_144, num_hidden_layers: 100 };
    await expect(checked({}, large)).rejects.toThrow(
      /does not fit on 1 rank.* GiB moments .* the main memory has .*--no-check/,
    );
  },
);

withPython('a run whose calls may be longer than the trainer has memory for starts with a warning', async () => {
  expect(await checked({})).toBeNull();
  expect(await checked({ max_prompt_length: 2 ** 36 })).toMatch(
    /does not fit on 1 rank\(s\) with a sequence of 68,719,476,864 tokens: .*GiB activations.* of which at most [\d,]+ tokens fit/,
  );
});

withPython('a trainer server that is away is refused before a run starts, with its address', async () => {
  const nobody = await holdFreePort('127.0.0.1');
  const url = `http://127.0.0.1:${nobody.port}`;
  await nobody.close();
  await expect(checked({ lora_rank: 4, trainer_server: { url } })).rejects.toThrow(
    `the trainer server at ${url} does not answer`,
  );
});

test('a model that is on another machine is left to the trainer there', async () => {
  const config = runConfig.parse({ model: 'somebody/else', tasks: ['t'], iterations: 1 });
  await requireTrainable(config, { home: '/nosuchhome', trainer_keys: [] }, signal);
});
