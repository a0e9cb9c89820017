import { existsSync } from 'node:fs';
import { realpath, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { parse, TomlError } from 'smol-toml';
import { TrialgateError } from '../../core/errors.ts';
import type { FolderTask } from '../../core/task.ts';
import { validateFile } from '../../core/validate-file.ts';
import { isInsideSandbox } from './inside-sandbox.ts';
import { locate } from './locate.ts';
import { requirePlainImage } from './plain-dockerfile.ts';
import { readInside, requireInside } from './read-inside.ts';
import { agentNetworkOf, hasOwnTestImage, limitsOf, taskFile } from './task-file.ts';

/**
 * Loads a task from its folder.
 * @throws TrialgateError `bad_input` that names the file, and the line or field
 */
export async function loadTask(folder: string): Promise<FolderTask> {
  const root = await realpath(await locate(folder));
  if (await isInsideSandbox(root))
    throw new TrialgateError('bad_input', `${root} lies in a sandbox: an agent may have written it, so it is no task`);
  const file = join(root, 'task.toml');
  const found = validateFile(taskFile, parseToml(await required(root, 'task.toml'), file), file);
  const { task, agent, verifier, environment } = found;
  const instruction = withoutCanary(await required(root, 'instruction.md'));
  await required(root, 'tests/test.sh');
  for (const part of ['tests', 'environment']) await requireInside(root, part);
  await requirePlainImage({ root, folder: 'environment', inside: '/app' });
  if (hasOwnTestImage(found)) await requirePlainImage({ root, folder: 'tests', inside: '/tests' });
  for (const [name, why] of REFUSED_FILES)
    if (existsSync(join(root, name))) throw new TrialgateError('bad_input', `${join(root, name)}: ${why}`);
  return {
    kind: 'folder',
    name: task.name ?? basename(root),
    folder: root,
    instruction,
    network: agentNetworkOf(found),
    agent: { timeoutSec: agent.timeout_sec },
    verifier: {
      timeoutSec: verifier.timeout_sec,
      env: verifier.env,
      environment: limitsOf(verifier.environment ?? environment),
    },
    environment: limitsOf(environment),
  };
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

/** Returns an instruction without the marks at its beginning by which a benchmark is found in training data. Harbor does not show them either. */
function withoutCanary(text: string): string {
  const lines = text.split('\n');
  const first = lines.findIndex((line) => !/^(<!--.*canary.*-->|#.*canary.*)$/i.test(line.trim()));
  return first <= 0 ? text : lines.slice(first).join('\n').trimStart();
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
