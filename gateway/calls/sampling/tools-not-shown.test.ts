import { expect, test } from 'vitest';
import { useTokenGateways } from '../../../tests/support/harness/token-gateway.ts';
import type { TokenEngine } from '../../../tests/support/fakes/token-engine.ts';
import { explainToolsNotShown } from './tools-not-shown.ts';

const context = useTokenGateways();
const MESSAGES = [{ role: 'user', content: 'look' }];
const TOOLS = ['ls', 'cat'].map((name) => ({ type: 'function', function: { name, parameters: { type: 'object' } } }));
/** An engine whose chat template ignores tools. */
const IGNORES: Partial<TokenEngine> = { route: (_method, _path, body) => void delete body['tools'] };

async function recorded(engine: Partial<TokenEngine>, ...fields: object[]) {
  await context.serve(engine);
  const trial = await context.trial();
  for (const each of fields) await (await trial.chat({ messages: MESSAGES, ...each })).text();
  return trial.calls();
}

test('a call whose tools the model’s chat template does not show says so in its record, keeps its tools there, and is trained all the same', async () => {
  const calls = await recorded(IGNORES, { tools: TOOLS }, { tools: TOOLS.slice(1) }, { tools: [] }, {});
  expect(calls.map(({ sampling }) => sampling['tools_not_shown'])).toEqual([2, 1, undefined, undefined]);
  expect(calls[0]).toMatchObject({ status: 'completed', untrainable: null, request: { tools: TOOLS } });
  expect(calls.map((call) => explainToolsNotShown(call)?.split(':')[0])).toEqual([
    "the request has 2 tools, this model's chat template shows none",
    "the request has 1 tool, this model's chat template shows none",
    undefined,
    undefined,
  ]);
});

test.each<[string, Partial<TokenEngine>, object]>([
  ['whose template shows tools', {}, {}],
  ['that cannot say', { ...IGNORES, scaleOut: false }, {}],
  ['that is given the tools as a variable of its template', IGNORES, { chat_template_kwargs: { xml_tools: TOOLS } }],
])('nothing is recorded about the tools of a model %s', async (_, engine, fields) => {
  const [call] = await recorded(engine, { tools: TOOLS, ...fields });
  expect(call?.sampling).not.toHaveProperty('tools_not_shown');
});
