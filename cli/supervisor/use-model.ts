import { setTimeout as sleep } from 'node:timers/promises';
import { resolveModel } from '../../activities/run/resolve-paths.ts';
import { TrialgateError } from '../../core/errors.ts';
import type { Deployment } from '../config/schema.ts';
import { requireModel } from '../models/require-model.ts';
import { withDeployment } from '../run/connect.ts';
import { requireIdleEngines } from '../run/require-idle-engines.ts';
import { requestModel } from './control.ts';
import { hasModel, livingState, type StackState } from './state.ts';

/**
 * Switches the deployment's own engine to another model while all other processes go on. The supervisor keeps the choice for later starts. Returns a
 * sentence about the result. A switch that fails or is interrupted changes nothing: the engine starts again with the old model.
 * @throws TrialgateError when the deployment does not run or has no engine of its own, when there is no such model, when a run has the
 * engines, or when the engine cannot start with the model
 */
export async function useModel(
  config: Deployment,
  wanted: string,
  onChange: (state: StackState) => void,
  signal: AbortSignal,
): Promise<string> {
  const { home } = config;
  const state = requireOwnEngine(home, wanted);
  const model = resolveModel(wanted, process.cwd());
  // It is checked here, because the engine that runs ends before vLLM would refuse it.
  await requireModel(model, config, signal);
  const kept = 'Later starts take it too, until `up --model` or a changed setting names another';
  if (hasModel(state, model)) {
    await requestModel(home, model, signal);
    return `the engine runs ${model} already. ${kept}`;
  }
  await withDeployment(config, requireIdleEngines);
  const over = new AbortController();
  const shown = showUntil(home, onChange, over.signal);
  try {
    await requestModel(home, model, signal);
  } finally {
    over.abort();
    await shown;
  }
  return `the engine runs ${model}. ${kept}`;
}

function requireOwnEngine(home: string, model: string): StackState {
  const state = livingState(home);
  if (state === null)
    throw new TrialgateError(
      'missing_prerequisite',
      `nothing runs in ${home}: \`npx trialgate up --model ${model}\` starts it with this model`,
    );
  if (state.status !== 'ready')
    throw new TrialgateError(
      'missing_prerequisite',
      `Trialgate is ${state.status} in ${home}: try again when \`npx trialgate status\` says that all is ready`,
    );
  if (!state.components.some(({ name }) => name === 'vllm'))
    throw new TrialgateError(
      'bad_input',
      `this deployment did not start its engines (${state.engines.join(', ') || '`npx trialgate engine list` lists them'}): start vLLM there with ${model} yourself, as docs/getting-started.md says`,
    );
  return state;
}

/** Reports the state while the engine is not ready. */
async function showUntil(home: string, onChange: (state: StackState) => void, over: AbortSignal): Promise<void> {
  while (!over.aborted) {
    const state = livingState(home);
    if (state?.components.some(({ name, status }) => name === 'vllm' && status !== 'ready')) onChange(state);
    await sleep(100, undefined, { signal: over }).catch(() => {});
  }
}
