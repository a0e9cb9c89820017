import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { resolveConfig } from '../../config/resolve.ts';
import { makePlan } from '../plan.ts';
import { componentsOf } from './all.ts';

const ANY = { gateway_port: '0', postgres_port: '0', temporal_port: '0' };

test.each([
  [{}, true, { TRIALGATE_ENGINES_FILE: '', TRIALGATE_ENGINES_KUBERNETES: '' }],
  [
    { engines: 'openai+https://a.example/api/v1', engine_keys: 'a.example=A_KEY' },
    false,
    { TRIALGATE_ENGINES: '["openai+https://a.example/api/v1"]', TRIALGATE_ENGINE_KEYS: '["a.example=A_KEY"]' },
  ],
  [{ engines_file: 'engines.yaml' }, false, { TRIALGATE_ENGINES: '[]', TRIALGATE_ENGINES_FILE: 'HOME/engines.yaml' }],
  [
    { engines_kubernetes: 'app=engine', engines_kubernetes_port: '8001' },
    false,
    { TRIALGATE_ENGINES_KUBERNETES: 'app=engine', TRIALGATE_ENGINES_KUBERNETES_PORT: '8001' },
  ],
])(
  'the gateways of a deployment get its settings %j, and whether it starts a vLLM of its own is %s',
  async (flags, hasEngine, expected) => {
    const home = mkdtempSync(join(tmpdir(), 'trialgate-gateway-'));
    try {
      const plan = await makePlan(resolveConfig({ cwd: home, env: {}, flags: { home, ...ANY, ...flags } }).config);
      const { components } = componentsOf(plan, ['vllm', 'gateway']);
      expect(components.map(({ name }) => name)).toEqual([...(hasEngine ? ['vllm'] : []), 'gateway']);
      const env = components.at(-1)?.launch().env;
      for (const [name, value] of Object.entries(expected)) expect(env?.[name]).toBe(value.replace('HOME', home));
      expect(env?.['TRIALGATE_TEMPORAL_ADDRESS']).toBe(plan.temporalAddress);
      await plan.held.close();
    } finally {
      rmSync(home, { recursive: true });
    }
  },
);
