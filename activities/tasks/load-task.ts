import { realpath, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { parse, TomlError } from 'smol-toml';
import { z } from 'zod';
import { TrialgateError } from '../../core/errors.ts';
import type { FolderTask } from '../../core/task.ts';
import { validateFile } from '../../core/validate-file.ts';
import { isInsideSandbox } from './inside-sandbox.ts';
import { locate } from './locate.ts';
import { readInside, requireInside } from './read-inside.ts';

const seconds = z.number().positive();
const count = z.number().positive();
const texts = z.record(z.string(), z.string());

/** `task.toml` as Harbor writes it. Other keys are ignored, as Harbor ignores them. */
const taskFile = z.looseObject({
  task: z.looseObject({ name: z.string().min(1).optional(), description: z.string().optional() }).prefault({}),
  agent: z.looseObject({ timeout_sec: seconds.default(600) }).prefault({}),
  verifier: z.looseObject({ timeout_sec: seconds.default(600), env: texts.default({}) }).prefault({}),
  environment: z
    .looseObject({
      cpus: count.default(1),
      memory_mb: count.default(2048),
      storage_mb: count.default(10240),
      env: texts.default({}),
    })
    .prefault({}),
});

/**
 * Loads a task from its folder.
 * @throws TrialgateError `bad_input` that names the file, and the line or field
 */
export async function loadTask(folder: string): Promise<FolderTask> {
  const root = await realpath(await locate(folder));
  if (await isInsideSandbox(root))
    throw new TrialgateError('bad_input', `${root} lies in a sandbox: an agent may have written it, so it is no task`);
  const file = join(root, 'task.toml');
  const { task, agent, verifier, environment } = validateFile(
    taskFile,
    parseToml(await required(root, 'task.toml'), file),
    file,
  );
  const instruction = await required(root, 'instruction.md');
  await required(root, 'tests/test.sh');
  for (const part of ['tests', 'environment']) await requireInside(root, part);
  return {
    kind: 'folder',
    name: task.name ?? basename(root),
    folder: root,
    instruction,
    agent: { timeoutSec: agent.timeout_sec },
    verifier: { timeoutSec: verifier.timeout_sec, env: verifier.env },
    environment: {
      cpus: environment.cpus,
      memoryMb: environment.memory_mb,
      storageMb: environment.storage_mb,
      env: environment.env,
    },
  };
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
