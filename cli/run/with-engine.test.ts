import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { REPOSITORY } from '../../core/repository.ts';
import { FakeEngine } from '../../tests/support/fakes/fake-engine.ts';
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
