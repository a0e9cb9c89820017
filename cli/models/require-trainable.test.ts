import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { INSTALLS } from '../folders.ts';
import { requireTrainable } from './require-trainable.ts';

const { signal } = new AbortController();

/** Checks a run of a small Llama, of which only the configuration is there. */
async function checked(settings: Record<string, unknown>): Promise<void> {
  await using folder = await temporaryHome();
  const small = { model_type: 'llama', hidden_size: 16, intermediate_size: 16, num_hidden_layers: 1, vocab_size: 8 };
  const heads = { num_attention_heads: 2, num_key_value_heads: 2 };
  await writeFile(join(folder.home, 'config.json'), JSON.stringify({ ...small, ...heads }));
  const config = runConfig.parse({ model: folder.home, tasks: ['t'], iterations: 1, ...settings });
  await requireTrainable(config, folder.home, signal);
}

test.skipIf(!existsSync(INSTALLS.python))(
  '`target_modules` that the model does not have are refused before a run starts, with the layers that it has',
  async () => {
    await expect(checked({ lora_rank: 4, target_modules: ['c_attn'] })).rejects.toThrow(
      /`target_modules` .*c_attn.*: a llama has down_proj, .*q_proj.*Name some of these/,
    );
  },
);

test('a model that is on another machine is left to the trainer there', async () => {
  const config = runConfig.parse({ model: 'somebody/else', tasks: ['t'], iterations: 1 });
  await requireTrainable(config, '/nosuchhome', signal);
});
