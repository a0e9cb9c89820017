import { existsSync } from 'node:fs';
import { realpath, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { parse, TomlError } from 'smol-toml';
import { TrialgateError } from '../../core/errors.ts';
import type { FolderTask, ImageSource } from '../../core/task.ts';
import { validateFile } from '../../core/validate-file.ts';
import { absoluteUrl } from '../repositories/repository-url.ts';
import { isInsideSandbox } from './inside-sandbox.ts';
import { locate } from './locate.ts';
import { requireNoDockerignore, requireNoServices, requirePlainImage } from './plain-dockerfile.ts';
import { readInside, requireInside } from './read-inside.ts';
import { agentNetworkOf, hasOwnTestImage, limitsOf, taskFileFor, verifierHostsOf, type TaskFile } from './task-file.ts';

/**
 * Loads a task from its folder. `hasImages`: its sandboxes can have an image of its own; without that, a task that needs one is refused.
 * @throws TrialgateError `bad_input` that names the file, and the line or field
 */
export async function loadTask(folder: string, { hasImages = false } = {}): Promise<FolderTask> {
  const root = await realpath(await locate(folder));
  if (await isInsideSandbox(root))
    throw new TrialgateError('bad_input', `${root} lies in a sandbox: an agent may have written it, so it is no task`);
  const file = join(root, 'task.toml');
  const found = validateFile(taskFileFor(hasImages), parseToml(await required(root, 'task.toml'), file), file);
  const { task, agent, verifier, environment, trialgate } = found;
  const { repository = null } = trialgate;
  const instruction = withoutCanary(await required(root, 'instruction.md'));
  await required(root, 'tests/test.sh');
  for (const part of ['tests', 'environment']) await requireInside(root, part);
  for (const part of ['environment', ...(hasOwnTestImage(found) ? ['tests'] : [])])
    for (const refuse of [requireNoServices, requireNoDockerignore]) await refuse(join(root, part));
  if (!hasImages) {
    await requirePlainImage({ root, folder: 'environment', inside: '/app' });
    if (hasOwnTestImage(found)) await requirePlainImage({ root, folder: 'tests', inside: '/tests' });
  }
  for (const [name, why] of REFUSED_FILES)
    if (existsSync(join(root, name))) throw new TrialgateError('bad_input', `${join(root, name)}: ${why}`);
  return {
    kind: 'folder',
    name: task.name ?? basename(root),
    folder: root,
    instruction,
    network: agentNetworkOf(found),
    image: hasImages ? imageOf(join(root, 'environment'), environment) : null,
    repository: repository && { ...repository, url: absoluteUrl(repository.url, root) },
    agent: { timeoutSec: agent.timeout_sec },
    verifier: {
      timeoutSec: verifier.timeout_sec,
      env: verifier.env,
      environment: limitsOf(verifier.environment ?? environment),
      image: hasImages && hasOwnTestImage(found) ? imageOf(join(root, 'tests'), verifier.environment ?? {}) : null,
      hosts: verifierHostsOf(found),
    },
    environment: limitsOf(environment),
  };
}

/** An image that is built already has precedence over its Dockerfile, as in Harbor. */
function imageOf(
  folder: string,
  { docker_image: name, build_timeout_sec: buildSeconds }: Partial<TaskFile['environment']>,
): ImageSource | null {
  if (name !== undefined) return { name };
  if (!existsSync(join(folder, 'Dockerfile'))) return null;
  return { folder, ...(buildSeconds === undefined ? {} : { buildSeconds }) };
}

const LEAVES_OUT =
  'it leaves files out of the tests, and they get all of tests/: remove these files and the .harborignore';
/** Files of Harbor's format, beside those of an image, whose effect this version does not give. */
const REFUSED_FILES = [
  [
    'trajectory.json',
    'the task wants its agent to go on from an earlier conversation: no agent of this version can, so write what it must know into instruction.md',
  ],
  ['.harborignore', LEAVES_OUT],
  ['tests/.harborignore', LEAVES_OUT],
] as const;

/**
 * Returns an instruction without the marks at its beginning by which a benchmark is found in training data, and without the empty lines
 * after them, as Harbor shows it (`strip_canary` in `harbor/models/task/task.py`). Python reads each end of a line as `\n`.
 */
function withoutCanary(text: string): string {
  const lines = text.split(/\r\n|\r|\n/);
  const mark = lines.findIndex((line) => !/^(<!--.*canary.*-->|#.*canary.*)$/i.test(line.trim()));
  const marks = mark < 0 ? lines.length : mark;
  const rest = lines.slice(marks);
  const first = rest.findIndex((line) => line.trim() !== '');
  return rest.slice(first < 0 ? rest.length : first).join('\n');
}

/** Returns true when the folder is meant to be a task, valid or not. */
export async function isTask(folder: string): Promise<boolean> {
  for (const file of ['task.toml', 'instruction.md']) {
    if ((await stat(join(folder, file)).catch(() => null))?.isFile()) return true;
  }
  return false;
}

function parseToml(text: string, file: string): unknown {
  try {
    return parse(text);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    const fault = error.message.split('\n')[0];
    throw new TrialgateError('bad_input', `${file}:${error.line}:${error.column}: ${fault}`, { cause: error });
  }
}

async function required(root: string, name: string): Promise<string> {
  const file = join(root, name);
  const text = await readInside(root, name).catch((error: NodeJS.ErrnoException) => {
    if (error instanceof TrialgateError) throw error;
    const why = error.code === 'ENOENT' ? 'is missing' : `cannot be read (${error.code})`;
    throw new TrialgateError('bad_input', `${file} ${why}; a task needs task.toml, instruction.md and tests/test.sh`);
  });
  if (text.trim() === '' && !file.endsWith('.toml')) throw new TrialgateError('bad_input', `${file} is empty`);
  return text;
}
