import { join } from 'node:path';
import { requireMachine } from '../doctor/require-machine.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { installWithProgress } from '../install/install.ts';
import { requireEngineModel } from '../models/require-model.ts';
import type { Asked } from '../options.ts';
import { stackProgress } from '../progress.ts';
import { warnOfSettingsNotGiven } from '../supervisor/settings-not-given.ts';
import { livingState } from '../supervisor/state.ts';
import { startStack } from '../supervisor/stack.ts';
import { trainFile, wholeNumber } from './train-file.ts';

/** Installs, starts and trains in this terminal. Stops what it started at the end and at Ctrl-C. */
export async function quickstart(
  asked: Asked,
  options: { iterations: string; json?: boolean },
  signal: AbortSignal,
): Promise<void> {
  const { config: deployment } = asked;
  wholeNumber(options.iterations, '--iterations');
  const train = (stopsAfterwards: boolean) =>
    trainFile(
      join(REPOSITORY, 'quickstart.yaml'),
      { deployment, cancelOnFailure: true, stopsAfterwards, ...options },
      signal,
    );
  await requireMachine(asked);
  if (!livingState(deployment.home)) warnOfSettingsNotGiven(asked);
  await installWithProgress({ device: deployment.device, python: deployment.python }, signal);
  if (livingState(deployment.home)?.status === 'ready') return void (await train(false));
  await requireEngineModel(deployment, signal);
  const progress = stackProgress();
  const stack = await startStack({ ...asked, cancelsItsRun: true, onChange: progress.show }, signal).finally(
    progress.end,
  );
  for (const note of stack.state().notes) console.error(`note: ${note}`);
  try {
    await train(true);
  } finally {
    await stack.stop();
  }
  console.error(
    'next: `npx trialgate up`, then train your own agent (docs/getting-started.md). One that uses tools needs',
  );
  console.error(
    "`npx trialgate up --engine-args '--enable-auto-tool-choice --tool-call-parser hermes'` (hermes for the small model; other models have other parsers)",
  );
}
