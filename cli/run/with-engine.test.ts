import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { REPOSITORY } from '../../core/repository.ts';
import { FakeEngine } from '../../tests/support/fakes/fake-engine.ts';
import { OpenAiServer } from '../../tests/support/fakes/openai-server.ts';
import { IN_GATE } from '../../tests/support/harness/in-gate.ts';
import { temporaryDeployment } from '../../tests/support/harness/temporary-deployment.ts';
import { tryCommand } from './try-command.ts';

const TASK = join(REPOSITORY, 'tasks/train/add');
const trial = z.object({
  outcome: z.string(),
  samples: z.array(z.object({ tokens: z.number(), trained_tokens: z.number() })),
});

test('`try --engine` runs a trial on an engine where no deployment runs, and leaves no deployment behind', async ({
  signal,
}) => {
  const engine = await new FakeEngine().start();
  const { config, home, remove } = await temporaryDeployment();
  try {
    const printed = await tryCommand(config, { task: TASK, agent: 'oneshot', engine: engine.url, json: true }, signal);
    expect(printed.failed).toBe(false);
    expect(trial.parse(JSON.parse(printed.text))).toMatchObject({
      outcome: 'scored',
      samples: [{ tokens: 8, trained_tokens: 5 }],
    });
    expect(existsSync(join(home, 'postgres'))).toBe(false);
    await engine.stop();
    await expect(tryCommand(config, { task: TASK, agent: 'oneshot', engine: engine.url }, signal)).rejects.toThrow(
      `the engine ${engine.url} cannot be reached`,
    );
    await expect(
      tryCommand(config, { task: TASK, agent: 'oneshot', engine: engine.url, run: 'first' }, signal),
    ).rejects.toThrow('--run: with --engine it is a run file');
  } finally {
    await engine.stop();
    await remove();
  }
});

/** A server that wants a key, and a deployment's folder in which nothing runs. */
async function keyedServer() {
  const server = Object.assign(await new OpenAiServer().start(), { base: '/api/v1', key: 'sk-right' });
  const { config, home, remove } = await temporaryDeployment();
  onTestFinished(async () => {
    await server.stop();
    await remove();
  });
  const engine = `openai+${server.url}/api/v1`;
  return { config, home, engine, host: new URL(server.url).host };
}

test('`try --engine openai+URL` starts nothing when the server wants a key that no setting names', async ({
  signal,
}) => {
  const { config, engine } = await keyedServer();
  await expect(tryCommand(config, { task: TASK, agent: 'oneshot', engine }, signal)).rejects.toThrow(
    `the server ${engine} answered 401: it wants a key, or refuses the one that it got. Name`,
  );
});

test.skipIf(process.env[IN_GATE])(
  '`try --engine openai+URL` scores a trial on a server of OpenAI’s completions where no deployment runs',
  async ({ signal }) => {
    const { config, home, engine, host } = await keyedServer();
    await writeFile(join(home, 'key'), 'sk-right');
    const engine_keys = [`${host}=${join(home, 'key')}`];
    const asked = { task: TASK, agent: 'oneshot', engine };
    const { text, failed } = await tryCommand({ ...config, engine_keys }, asked, signal);
    expect(failed).toBe(false);
    expect(text).toMatch(/outcome scored +reward 0\b/);
    expect(text).toContain(`no sample: calls to ${engine} cannot be trained on`);
  },
);
