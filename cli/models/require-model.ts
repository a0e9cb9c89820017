import { existsSync, readdirSync } from 'node:fs';
import { basename, isAbsolute, join } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { nearest } from '../../core/nearest.ts';
import { hasOwnEngine, type Deployment } from '../config/schema.ts';
import { INSTALLS } from '../folders.ts';
import { livingState } from '../supervisor/state.ts';
import { resolveModel } from '../../activities/run/resolve-paths.ts';
import { cachedModel, hasWeights } from './hub-cache.ts';
import { askHub } from './hub.ts';

/** The form of a model's name on a hub. Every other text is a path. */
const HUB_NAME = /^[\w-][\w.-]*(\/[\w-][\w.-]*)?$/;
const KINDS = "name a model's folder, an installed model, or one on Hugging Face (ORGANIZATION/NAME)";

/**
 * Checks that a model is there before anything is started with it: a folder with a model, a download, or a name that the hub knows.
 * @param model a folder or a name, as `resolveModel` returns it
 * @param home the deployment's folder, whose cache has the downloads
 * @param override the end of the advice where the hub cannot be asked
 * @throws TrialgateError `bad_input` with the name that was probably meant, or `missing_prerequisite` when nobody can say whether the model exists
 */
export async function requireModel(
  model: string,
  { home, override = '' }: { home: string; override?: string },
  signal: AbortSignal,
): Promise<void> {
  if (isAbsolute(model) && existsSync(model)) return requireFolder(model);
  if (!HUB_NAME.test(model)) {
    const install = model.startsWith(`${INSTALLS.models}/`) ? ', which `npx trialgate install` makes' : '';
    throw refusal(`there is no folder ${model}${install}`, model, home);
  }
  if (cachedModel(model, home) !== null) return;
  const answer = await askHub(model, signal);
  if (answer.kind === 'found') return;
  if (answer.kind === 'none') throw refusal(`there is no model ${model}: ${answer.why}`, model, home);
  throw refusal(
    `${model} is neither installed nor downloaded, and ${answer.why}, so it cannot be checked`,
    model,
    home,
    `name the folder of a model, or let this machine reach the hub${override}`,
  );
}

/**
 * Checks the model that a deployment is about to start its own engine with. If nobody can say whether it exists, prints a warning: the engine may reach the
 * hub by other means than this program, such as a proxy.
 */
export async function requireEngineModel(config: Deployment, signal: AbortSignal): Promise<void> {
  if (!hasOwnEngine(config)) return;
  try {
    await requireModel(resolveModel(config.model), config, signal);
  } catch (error) {
    if (!(error instanceof TrialgateError) || error.code !== 'missing_prerequisite') throw error;
    console.error(`WARNING: ${error.message}`);
  }
}

function requireFolder(folder: string): void {
  if (hasWeights(folder)) return;
  const lacks = existsSync(join(folder, 'config.json'))
    ? 'no .safetensors file: convert its weights first'
    : "no config.json: name the folder of a model in Hugging Face's format";
  throw new TrialgateError('bad_input', `${folder} has ${lacks}`);
}

/** Returns the refusal, with the installed model or the engine's own that was probably meant. */
function refusal(what: string, model: string, home: string, otherwise?: string): TrialgateError {
  const known = [...installed(), ...servedBy(home)];
  const short = (name: string): string => basename(name).toLowerCase();
  const like = nearest(short(model), known.map(short));
  const meant = known.find((name) => like !== null && short(name) === like);
  if (meant !== undefined)
    return new TrialgateError(
      'bad_input',
      `${what}. Did you mean ${meant}?${otherwise ? ` Otherwise ${otherwise}` : ''}`,
    );
  return new TrialgateError(otherwise ? 'missing_prerequisite' : 'bad_input', `${what}: ${otherwise ?? KINDS}`);
}

const installed = (): string[] => (existsSync(INSTALLS.models) ? readdirSync(INSTALLS.models) : []);

/** Returns the model of the deployment's own engine, if one runs. */
function servedBy(home: string): string[] {
  const model = livingState(home)?.settings?.['model'];
  return typeof model === 'string' ? [model] : [];
}
