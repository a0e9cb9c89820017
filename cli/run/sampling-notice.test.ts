import { expect, test } from 'vitest';
import { SglangEngine } from '../../tests/support/fakes/sglang/sglang-engine.ts';
import { useTokenEngines } from '../../tests/support/fakes/token-engines.ts';
import { samplingNotice } from './sampling-notice.ts';

const startEngine = useTokenEngines();

test('a run file that truncates sampling gets a warning, unless its engines return sampling masks', async () => {
  const [masked, plain] = [await startEngine({ mask: (id) => [id] }), await startEngine()];
  const sampling = { top_p: 0.8, top_k: { default: 40 }, temperature: 0.7 };
  expect(await samplingNotice({ sampling }, [masked])).toBeNull();
  expect(await samplingNotice({ sampling }, [masked, plain])).toEqual({
    nothingTrains: false,
    text:
      `top_p 0.8, top_k 40 of the run file's sampling truncate it, and ${plain} does not return sampling masks: calls that they answer are not trained on. ` +
      'Remove the settings, or start vLLM with --return-sampling-mask (docs/gateway.md, "Sampling masks")',
  });
  expect(await samplingNotice({ sampling }, [plain])).toMatchObject({ nothingTrains: true });
  expect(await samplingNotice({ sampling: { ...sampling, repetition_penalty: 1.1 } }, [masked])).toEqual({
    nothingTrains: true,
    text: expect.stringMatching(/^repetition_penalty 1.1 .*no call is trained on$/),
  });
});

test('a run file with a default `stop` text gets a warning when an engine parses tool calls', async () => {
  const [masked, plain, raw] = [
    await startEngine({ mask: (id) => [id], parses: true }),
    await startEngine({ parses: true }),
    await startEngine({ parses: false }),
  ];
  const sampling = { stop: { default: ['</answer>'] } };
  expect(await samplingNotice({ sampling }, [masked, plain])).toEqual({
    nothingTrains: true,
    text: expect.stringMatching(/no call is trained on/),
  });
  expect(await samplingNotice({ sampling }, [plain])).toEqual({
    nothingTrains: false,
    text: expect.stringMatching(/does not continue the one before/),
  });
  expect(await samplingNotice({ sampling }, [raw])).toBeNull();
});

test('a run file gets no warning for settings that exclude no token, or that it leaves to the agent', async () => {
  const sampling = { top_p: 1, top_k: -1, min_p: 0, repetition_penalty: 1, temperature: 0.7, seed: 3 };
  expect(await samplingNotice({ sampling }, ['http://127.0.0.1:9'])).toBeNull();
  expect(await samplingNotice({ sampling: { top_p: 'agent' } }, ['http://127.0.0.1:9'])).toBeNull();
});

test('a run file that truncates sampling, or has `stop`, gets no warning with SGLang: it returns masks where they are asked for, and its own route continues calls with `stop` by ids', async () => {
  const engine = Object.assign(await new SglangEngine().start(), { thinks: true });
  expect(await samplingNotice({ sampling: { top_p: 0.8 } }, [engine.url])).toBeNull();
  expect(await samplingNotice({ sampling: { stop: { default: ['x'] } } }, [engine.url])).toBeNull();
  await engine.stop();
});
