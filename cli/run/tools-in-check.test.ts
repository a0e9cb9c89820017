import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { SECRET } from '../../tests/support/harness/gateways.ts';
import { taskWith, temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { useTokenGateways } from '../../tests/support/harness/token-gateway.ts';
import { tryBeforeStart } from './try-before-start.ts';

const gateway = useTokenGateways();
const ASKED = {
  model: 'policy',
  messages: [{ role: 'user', content: 'Add 1 and 2.' }],
  tools: [{ type: 'function', function: { name: 'add', parameters: { type: 'object' } } }],
};
const AGENT = `curl -sf "$OPENAI_BASE_URL/chat/completions" -H "authorization: Bearer $OPENAI_API_KEY" -H 'content-type: application/json' -d '${JSON.stringify(ASKED)}'`;

test.each([
  ['warns of an agent whose tools the model’s chat template does not show', false],
  ['says nothing of tools that the chat template shows', true],
])('the check before a run %s', async (_, shows) => {
  await gateway.serve({ route: (_method, _path, body) => void (shows || delete body['tools']) });
  await using folder = await temporaryHome();
  const { home } = folder;
  const task = await taskWith(home, 'echo 1 > $LOGS_DIR/verifier/reward.txt');
  const agents = [{ name: 'adder', command: ['sh', '-c', AGENT] }];
  const config = runConfig.parse({ model: 'm', iterations: 1, tasks: [task.folder], agents });
  const said: string[] = [];
  const place = {
    db: gateway.db,
    gatewayUrl: gateway.gateway.url,
    secret: SECRET,
    home,
    unsandboxed: true,
    report: (line: string) => void said.push(line),
  };
  expect(await tryBeforeStart(config, place, new AbortController().signal)).toMatch(/^agents and verifiers work/);
  expect(said.filter((line) => line.startsWith('WARNING'))).toEqual(
    shows
      ? []
      : [
          expect.stringMatching(
            /^WARNING: the agent "adder": the request has 1 tool, this model's chat template shows none/,
          ),
        ],
  );
});
