import { realpathSync } from 'node:fs';
import { basename, dirname, isAbsolute, join, relative, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { BUNDLED } from '../../activities/reward/bundled.ts';
import { resolveModel } from '../../activities/run/resolve-paths.ts';
import { TrialgateError } from '../../core/errors.ts';
import { isAgentFunction, isAgentPath, type AgentEntry } from '../../core/run-config/agent-file.ts';
import type { PythonDependencies } from '../../core/run-config/dependencies.ts';
import { isOwnFunction, rewardFunctions, type Reward } from '../../core/run-config/reward.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { SandboxSetting } from '../../core/run-config/sandbox.ts';
import { isRows } from '../../core/run-config/task-source.ts';
import { REPOSITORY } from '../../core/repository.ts';
import type { Deployment } from '../config/schema.ts';
import { INSTALLS } from '../folders.ts';
import { livingState } from '../supervisor/state.ts';

/** What a run file reaches of the machines: a path, or a setting that names a program, a host or a variable. */
type Reach = { field: string; path: string } | { field: string; value: unknown };

export type Known = {
  /** The settings of an earlier run, which somebody started: what they reach is known. */
  base: RunConfig | null;
  home: string;
  /** The model of the deployment's own engine. */
  model: string | undefined;
  /** True when agents and installers run as the worker's user. */
  unsandboxed: boolean;
};

/** Returns what settings that were sent may reach without an earlier run. The gateway is not told all settings of its deployment. */
export function knownHere({ home, unsandboxed }: Deployment): Omit<Known, 'base'> {
  const { model, unsandboxed: isOpen } = livingState(home)?.settings ?? {};
  return { home, model: typeof model === 'string' ? model : undefined, unsandboxed: unsandboxed || isOpen === true };
}

/**
 * Refuses settings that came over the network and reach more of the machines than what people who work on them have named: the folders
 * of the project, and what an earlier run has. Whoever holds the admin key should not read other files with it, nor run programs outside sandboxes.
 * @param config with its paths resolved
 * @throws TrialgateError `bad_input` with the first such setting
 */
export function requireKnownReach(config: RunConfig, { base, home, model, unsandboxed }: Known): void {
  const known = base ? reachOf(base, true) : [];
  if (model !== undefined) known.push({ field: 'model', path: resolveModel(model) });
  for (const reach of reachOf(config, unsandboxed)) {
    if (known.some((each) => isSame(each, reach))) continue;
    if ('path' in reach && isOfProject(reach.path, home)) continue;
    throw new TrialgateError('bad_input', `${reach.field}: ${whyNot(reach)}: ${ELSEWHERE}`);
  }
}

const isSame = (one: Reach, other: Reach): boolean =>
  'path' in one && 'path' in other ? one.path === other.path : isDeepStrictEqual(one, other);

const ELSEWHERE =
  'start the run where the deployment runs, with "npx trialgate train FILE". A later one can then be started here as that run';

const whyNot = (reach: Reach): string =>
  'path' in reach
    ? `${JSON.stringify(reach.path)} is not in a folder of the project, which is all that a run file may name that is sent to the gateway`
    : `${JSON.stringify(reach.value)} reaches more than a sandbox does, which a run file may not that is sent to the gateway`;

/** @param all true to have also what only a deployment without sandboxes must know */
function reachOf(config: RunConfig, all: boolean): Reach[] {
  const { model, network, sandbox, verifier_sandbox: verifier, teacher, trainer_server: server } = config;
  const found: Reach[] = isAbsolute(model) ? [{ field: 'model', path: model }] : [];
  const value = (field: string, given: unknown): void => void found.push({ field, value: given });
  for (const source of config.tasks) found.push(...reachOfTasks('tasks', source, all));
  for (const source of config.evaluation.tasks) found.push(...reachOfTasks('evaluation.tasks', source, all));
  for (const entry of config.agents) found.push(...reachOfAgent(entry, all));
  if (config.reward !== null) found.push(...reachOfReward(config.reward, all));
  if (network !== null && network !== 'gateway') value('network', network);
  for (const setting of [sandbox, verifier]) if (setting !== null && !isPlain(setting)) value('sandbox', setting);
  for (const engine of config.engines) value('engines', engine);
  for (const logger of config.loggers)
    if (logger.folder !== undefined || logger.tracking_uri !== undefined || logger.endpoint !== undefined)
      value('loggers', logger);
  if (teacher !== null) value('teacher', teacher.url);
  if (server !== null) value('trainer_server', server);
  return found;
}

/** True for a kind's defaults, also with another image. Options of a cluster can start programs beside its sandboxes. */
const isPlain = (setting: SandboxSetting): boolean =>
  Object.keys(setting).every((key) => key === 'kind' || (key === 'image' && setting.kind === 'container'));

function reachOfTasks(field: string, source: RunConfig['tasks'][number], all: boolean): Reach[] {
  if (typeof source === 'string') return [{ field, path: source }];
  if (!isRows(source)) return [{ field, path: source.folder }];
  const rewards = source.reward === undefined ? [] : reachOfReward(source.reward, all);
  return [...(isAbsolute(source.rows) ? [{ field, path: source.rows }] : []), ...rewards];
}

function reachOfAgent(entry: AgentEntry, all: boolean): Reach[] {
  const field = 'agents';
  if (typeof entry === 'string') return isAgentPath(entry) ? [{ field, path: fileOf(entry) }] : [];
  const paths = [
    ...Object.values(entry.mounts),
    ...(entry.function === undefined ? [] : [fileOf(entry.function)]),
    ...pathsOf(entry.python),
    ...(entry.npm?.package_json === undefined ? [] : [entry.npm.package_json]),
  ].map((path) => ({ field, path }));
  return all || entry.network !== 'gateway' ? [...paths, { field, value: entry }] : paths;
}

function reachOfReward(given: Reward, all: boolean): Reach[] {
  const field = 'reward';
  return Object.values(rewardFunctions(given)).flatMap((each) => {
    const paths = [...(isOwnFunction(each.function) ? [fileOf(each.function)] : []), ...pathsOf(each.python)];
    const readsVariable = Object.values(each.env).some((text) => text.includes('$'));
    const { network, python } = { ...BUNDLED[each.function], ...each };
    const isReaching = network === 'host' || readsVariable || (all && python !== undefined);
    return [...paths.map((path) => ({ field, path })), ...(isReaching ? [{ field, value: each }] : [])];
  });
}

const fileOf = (named: string): string => (isAgentFunction(named) ? named.slice(0, named.lastIndexOf(':')) : named);

function pathsOf(python: PythonDependencies | undefined): string[] {
  const { requirements, pyproject, venv } = python ?? {};
  return [typeof requirements === 'string' ? requirements : undefined, pyproject, venv].filter(
    (path) => path !== undefined,
  );
}

/** True for what is really in a folder of the project, except hidden ones and the deployment's own, or is an installed model. */
function isOfProject(path: string, home: string): boolean {
  const real = realOf(path);
  if (isWithin(real, realOf(INSTALLS.models))) return true;
  const [deployment, parts] = [realOf(home), relative(realOf(REPOSITORY), real).split('/')];
  if (isWithin(real, deployment) || isWithin(deployment, real)) return false;
  // A file beside the project's folders may have the deployment's settings.
  const isBelow = parts.length > 1 || !basename(real).includes('.');
  return isBelow && parts.every((part) => part !== '' && !part.startsWith('.'));
}

const isWithin = (path: string, folder: string): boolean => path === folder || path.startsWith(`${folder}/`);

/** Returns where a path really leads; of one that does not exist, where it would. */
function realOf(path: string): string {
  const whole = resolve(path);
  try {
    return realpathSync(whole);
  } catch {
    return whole === dirname(whole) ? whole : join(realOf(dirname(whole)), basename(whole));
  }
}
