import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { z } from 'zod';
import { OpenAiServer } from '../../tests/support/fakes/openai-server.ts';
import { SECRET, useGateway } from '../../tests/support/harness/gateways.ts';
import { taskWith, temporaryHome, writeFiles } from '../../tests/support/harness/sandbox-fixtures.ts';
import { EXIT } from '../exit.ts';
import { main } from '../main.ts';
import { isRunFile } from './try-command.ts';

const gateway = useGateway();
const trial = z.object({ samples: z.array(z.object({ tokens: z.number(), trained_tokens: z.number() })) });

/** Runs `trialgate try` with a task whose tests are this script, and returns what it prints and its exit code. */
async function tried(tests: string, ...options: string[]): Promise<{ code: number; text: string }> {
  await using place = await temporaryHome();
  const { home } = place;
  const { folder } = await taskWith(home, tests);
  const ask = `curl -s "$OPENAI_BASE_URL/chat/completions" -H "authorization: Bearer $OPENAI_API_KEY" -H "content-type: application/json" -d "{\\"model\\": \\"policy\\", \\"messages\\": [{\\"role\\": \\"user\\", \\"content\\": \\"hello\\"}]}"`;
  await writeFiles(home, {
    'agents/crashes.yaml': "command: [sh, -c, 'exit 7']",
    'agents/goes-on.yaml': JSON.stringify({ command: ['sh', '-c', `${ask}; exit 0`] }),
  });
  const printed = vi.spyOn(console, 'log').mockImplementation(() => {});
  const deployment = ['--home', home, '--database-url', gateway.postgres.url, '--gateway-url', gateway.gateway.url];
  const given = options.map((option) => option.replace('HOME', home));
  try {
    const code = await main(['try', folder, ...given, ...deployment, '--secret', SECRET, '--unsandboxed']);
    return { code, text: printed.mock.calls.join('\n') };
  } finally {
    printed.mockRestore();
    process.exitCode = undefined;
  }
}

const GRADED = 'echo 1 > $LOGS_DIR/verifier/reward.txt';

test('the command exits with 0 for a trial that is scored, and says how many of its tokens are trained', async () => {
  const { code, text } = await tried(GRADED);
  expect(code).toBe(EXIT.done);
  expect(text).toMatch(/sample 1: 8 tokens, 5 of them trained, from 1 call/);
});

test('a trial on a server of OpenAI’s completions is scored, and the command says that its calls cannot be trained on, and why', async () => {
  const server = await new OpenAiServer().start();
  onTestFinished(() => server.stop());
  const engine = `openai+${server.url}`;
  await gateway.restart({ engines: [engine] });
  const { code, text } = await tried(GRADED);
  expect(code).toBe(EXIT.done);
  expect(text).toMatch(/outcome scored +reward 1\b/);
  expect(text).toContain(
    `no sample: calls to ${engine} cannot be trained on, because this server returns no token ids`,
  );
});

test('the command exits with 4 for a trial none of whose calls got a reply, although its work was scored, and says why', async () => {
  gateway.engine.fault = 'no_tool_parser';
  const { code, text } = await tried(GRADED, '--agent', join('HOME', 'agents/goes-on.yaml'));
  expect(code).toBe(EXIT.failed);
  expect(text).toContain('outcome scored');
  expect(text).toMatch(/no sample: the agent "goes-on" got no reply: engine_400/);
});

test('the command exits with 4 for a trial whose agent crashed', async () => {
  const { code, text } = await tried(GRADED, '--agent', join('HOME', 'agents/crashes.yaml'));
  expect(code).toBe(EXIT.failed);
  expect(text).toContain('outcome agent_error');
});

test('the command exits with 4 for a trial whose verifier failed, and says that none of its tokens are trained', async () => {
  const { code, text } = await tried('exit 3');
  expect(code).toBe(EXIT.failed);
  expect(text).toMatch(
    /sample 1: 8 tokens, none of them trained, because the trial ended as verifier_error, from 1 call/,
  );
  const { samples } = trial.parse(JSON.parse((await tried('exit 3', '--json')).text));
  expect(samples).toEqual([{ tokens: 8, trained_tokens: 0 }]);
});

test('the form of --engine is checked before anything is asked of it, and a key in it is not repeated', async () => {
  const printed = vi.spyOn(console, 'error').mockImplementation(() => {});
  onTestFinished(() => printed.mockRestore());
  for (const engine of ['openai+host:8000', 'openai+https://user:KEY@127.0.0.1:9/v1'])
    expect((await tried(GRADED, '--engine', engine)).code).toBe(EXIT.badInput);
  const text = printed.mock.calls.join('\n');
  expect(text).toContain('openai+host:8000 is no engine: expected');
  expect(text).not.toContain('KEY');
});

test('a folder is no run file, although its name has a dot, as the names of runs may', async () => {
  await using place = await temporaryHome();
  await writeFiles(place.home, { 'qwen2.5/config.json': '{}', 'run.yaml': '' });
  expect(isRunFile(join(place.home, 'qwen2.5'))).toBe(false);
  expect(isRunFile(join(place.home, 'run.yaml'))).toBe(true);
});
