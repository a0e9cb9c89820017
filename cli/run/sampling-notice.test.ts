import { afterEach, expect, test } from 'vitest';
import { TokenEngine } from '../../gateway/testing/token-engine.ts';
import { samplingNotice } from './sampling-notice.ts';

const engines: TokenEngine[] = [];
afterEach(async () => void (await Promise.all(engines.splice(0).map((engine) => engine.stop()))));

async function engineWith(mask: TokenEngine['mask']): Promise<string> {
  const engine = Object.assign(await new TokenEngine().start(), { mask });
  engines.push(engine);
  return engine.url;
}

test('a run whose own sampling truncates is warned of before it starts, unless its engines return sampling masks', async () => {
  const [masked, plain] = [await engineWith((id) => [id]), await engineWith(null)];
  const sampling = { top_p: 0.8, top_k: { default: 40 }, temperature: 0.7 };
  expect(await samplingNotice({ sampling }, [masked])).toBeNull();
  expect(await samplingNotice({ sampling }, [masked, plain])).toBe(
    `top_p 0.8, top_k 40 of the run file's sampling truncate it, and ${plain} does not return sampling masks: calls that they answer are not trained on. ` +
      'Remove the settings, or start vLLM with --return-sampling-mask (docs/gateway.md, "Sampling masks")',
  );
  expect(await samplingNotice({ sampling: { ...sampling, repetition_penalty: 1.1 } }, [masked])).toMatch(/^repetition_penalty 1.1 .*no call is trained on$/);
});

test('a stop text that a run forces is warned of where the engine reads tool calls out of the text', async () => {
  const [masked, plain, raw] = [await engineWith((id) => [id]), await engineWith(null), await engineWith(null)];
  for (const engine of engines) engine.parses = engine.url !== raw;
  const sampling = { stop: { default: ['</answer>'] } };
  expect(await samplingNotice({ sampling }, [masked, plain])).toMatch(/no call is trained on/);
  expect(await samplingNotice({ sampling }, [plain])).toMatch(/does not continue the one before/);
  expect(await samplingNotice({ sampling }, [raw])).toBeNull();
});

test('neutral settings and those left to the agent are not warned of', async () => {
  const sampling = { top_p: 1, top_k: -1, min_p: 0, repetition_penalty: 1, temperature: 0.7, seed: 3 };
  expect(await samplingNotice({ sampling }, ['http://127.0.0.1:9'])).toBeNull();
  expect(await samplingNotice({ sampling: { top_p: 'agent' } }, ['http://127.0.0.1:9'])).toBeNull();
});
