import { statSync } from 'node:fs';
import { TrialgateError } from '../../core/errors.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { hasImages, imageWithout, type SandboxSetting } from '../../core/run-config/sandbox.ts';
import type { FolderTask, ImageSource, Task } from '../../core/task.ts';
import { isPlainImage } from '../tasks/plain-dockerfile.ts';
import type { Image, PrepareOptions, SandboxBackend } from './backend.ts';
import { openBackend } from './backends.ts';
import { notBuilt } from './kubernetes/not-built.ts';
import type { Agent } from './load-agent.ts';
import type { VerifierPlace } from './host-sandboxes.ts';

/** Where a task's agent runs, and where its work is verified (null: in a sandbox of the same kind and image). */
export type TaskPlace = { backend: SandboxBackend; image: Image | null; verifier: VerifierPlace | null };

/**
 * Opens the kinds of sandboxes that a run's settings name for a task, and gets their images.
 * @throws TrialgateError `missing_prerequisite` when this host cannot run one, `bad_input` when an image cannot be had
 */
export async function placeTask(
  task: Task,
  { sandbox, verifier_sandbox: ofVerifier }: Pick<RunConfig, 'sandbox' | 'verifier_sandbox'>,
  options: PrepareOptions,
): Promise<TaskPlace> {
  const image = task.kind === 'folder' ? task.image : null;
  const own = await place(image, { setting: sandbox, advice: ADVICE }, options);
  const tests = task.kind === 'folder' ? task.verifier.image : null;
  if (ofVerifier === null && tests === null) return { ...own, verifier: null };
  return {
    ...own,
    verifier: await place(tests ?? image, { setting: ofVerifier ?? sandbox, advice: ADVICE_FOR_TESTS }, options),
  };
}

/**
 * Refuses a task whose agent or whose tests have an image that their kind of sandbox cannot run.
 * @throws TrialgateError `bad_input`
 */
export function requireImages(
  { image, verifier }: FolderTask,
  { sandbox, verifier_sandbox: setting }: Pick<RunConfig, 'sandbox' | 'verifier_sandbox'>,
): void {
  requireImage(image, sandbox, ADVICE);
  requireImage(verifier.image ?? image, setting ?? sandbox, ADVICE_FOR_TESTS);
}

const ADVICE = 'set `sandbox: container`';
const ADVICE_FOR_TESTS = 'set `verifier_sandbox: container`, or remove `verifier_sandbox`';

async function place(
  wanted: ImageSource | null,
  { setting, advice }: { setting: SandboxSetting; advice: string },
  options: PrepareOptions,
): Promise<VerifierPlace> {
  const backend = await openBackend(setting, options.signal);
  const otherwise = imageWithout(setting);
  const needed = requireImage(wanted ?? (otherwise === null ? null : { name: otherwise }), setting, advice);
  return { backend, image: needed === null ? null : await backend.prepare(needed, options) };
}

/** Returns the image that a sandbox needs: a kind without images gives a plain one by this machine's own programs. */
function requireImage(source: ImageSource | null, setting: SandboxSetting, advice: string): ImageSource | null {
  if (source !== null && 'folder' in source && setting.kind === 'kubernetes') throw notBuilt(source.folder);
  if (source === null || hasImages(setting)) return source;
  if ('name' in source && isPlainImage(source.name)) return null;
  throw new TrialgateError('bad_input', `${describe(source)}: ${setting.kind} runs no images: ${advice}`);
}

/**
 * Refuses an agent of a run that its kind of sandbox cannot run.
 * @throws TrialgateError `bad_input`
 */
export function requireKind(
  { name, network, mounts, python, npm }: Agent,
  { sandbox, network: ofRun }: Pick<RunConfig, 'sandbox' | 'network'>,
): void {
  if (sandbox.kind !== 'kubernetes') return;
  const refuse = (why: string): never => {
    throw new TrialgateError('bad_input', `agents: ${name}: sandboxes of the kind kubernetes ${why}`);
  };
  if ((ofRun ?? network) === 'host')
    refuse('have no open network: name the hosts that the agent needs as a list in `network`');
  if (python !== undefined || npm !== undefined) {
    const key = python === undefined ? 'npm' : 'python';
    refuse(`have the programs of an image: install the packages of \`${key}\` in the image, and remove \`${key}\``);
  }
  const file = Object.entries(mounts).find(([, path]) => !statSync(path).isDirectory());
  if (file)
    refuse(`mount only folders, and \`mounts.${file[0]}\` is the file ${file[1]}: put it into a folder, and name that`);
}

const describe = (source: ImageSource): string =>
  'name' in source ? `the image ${source.name}` : `the image of ${source.folder}/Dockerfile`;

/**
 * Refuses an agent whose packages were installed for this host where it runs with an image's programs.
 * @throws TrialgateError `bad_input`
 */
export function requirePackages({ name, python, npm }: Agent, { image }: Pick<TaskPlace, 'image'>): void {
  if (image === null || (python === undefined && npm === undefined)) return;
  const key = python === undefined ? 'npm' : 'python';
  throw new TrialgateError(
    'bad_input',
    `agents: ${name}: ${key}: its packages are installed for this machine, and the task has an image of its own: install them in the image, and remove \`${key}\``,
  );
}
