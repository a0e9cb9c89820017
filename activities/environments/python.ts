import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readFile, stat, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { decodeUtf8 } from '../../core/utf8.ts';
import { REPOSITORY } from '../../core/repository.ts';
import type { PythonDependencies } from '../../core/run-config/dependencies.ts';
import { isolation } from '../sandbox/isolation.ts';
import { probePython } from '../sandbox/sandbox-python.ts';
import type { Environment } from './environment.ts';
import { installOnce, type InstallOptions } from './run-installer.ts';

/** The one that `npx trialgate install` installs. */
const OWN_UV = join(REPOSITORY, '.trialgate/tools/python/bin/uv');

/**
 * Returns the environment that has the packages, and installs it with uv if it does not exist yet. Programs that ask for the same packages
 * share it. Versions that the requirements leave open are chosen once; `requirements.lock` in the environment's folder has them.
 * @throws TrialgateError `bad_input` with the file or the installer's reason
 */
export async function pythonEnvironment(given: PythonDependencies, options: InstallOptions): Promise<Environment> {
  if (given.venv !== undefined) return existingVenv(given.venv);
  const { python } = await isolation();
  const requirements = await requirementsOf(given);
  // Another version of Python may be installed under the same name.
  const { size, mtimeMs } = await stat(python.executable);
  const key = createHash('sha256')
    .update(`${python.executable} ${size} ${mtimeMs}\n${requirements.text}`)
    .digest('hex')
    .slice(0, 16);
  const folder = await installOnce(
    `python-${key}`,
    `Python packages (${requirements.what})`,
    options,
    async (draft, exec) => {
      const uv = findUv();
      const file = join(draft, requirements.file);
      await exec([uv, 'venv', '--quiet', '--relocatable', '--allow-existing', '--python', python.executable, draft]);
      await writeFile(file, requirements.text);
      const lock = join(draft, 'requirements.lock');
      const target = ['--python', join(draft, 'bin/python')];
      await exec([uv, 'pip', 'compile', '--quiet', ...target, '--output-file', lock, file]);
      // Sandboxes only read the environment, so an agent's process could not keep the bytecode that it compiles.
      const how = ['--quiet', '--link-mode', 'copy', '--compile-bytecode'];
      await exec([uv, 'pip', 'install', ...how, ...target, '-r', lock]);
    },
  );
  return environmentOf(folder);
}

const environmentOf = (folder: string): Environment => ({
  folders: [folder],
  path: [join(folder, 'bin')],
  python: join(folder, 'bin/python'),
  nodeModules: null,
});

/** A virtual environment of the user. The base of its Python must be visible in sandboxes too. */
async function existingVenv(venv: string): Promise<Environment> {
  const executable = join(venv, 'bin/python');
  const base = existsSync(executable) ? await probePython(executable) : null;
  if (!base)
    throw new TrialgateError('bad_input', `python.venv: ${executable} does not run: name a virtual environment`);
  const environment = environmentOf(venv);
  return base.prefix === null ? environment : { ...environment, folders: [venv, base.prefix] };
}

async function requirementsOf({ requirements, pyproject }: PythonDependencies) {
  if (Array.isArray(requirements))
    return {
      text: `${requirements.join('\n')}\n`,
      file: 'requirements.in',
      what: requirements.join(', ').slice(0, 100),
    };
  const path = pyproject ?? requirements ?? '';
  const bytes = await readFile(path).catch((cause: unknown) => {
    throw new TrialgateError('bad_input', `python: there is no file ${path}`, { cause });
  });
  const text = decodeUtf8(bytes, path);
  const include =
    pyproject === undefined ? /^\s*(?:-r|-c|-e|--requirement|--constraint|\.)\S*.*$/m.exec(text)?.[0] : undefined;
  if (include !== undefined)
    throw new TrialgateError(
      'bad_input',
      `python: ${path}: "${include.trim()}" names another file: write its requirements into this one`,
    );
  return { text, file: pyproject === undefined ? 'requirements.in' : 'pyproject.toml', what: path };
}

function findUv(): string {
  const onPath = (process.env.PATH ?? '').split(delimiter).map((folder) => join(folder, 'uv'));
  const found = [OWN_UV, ...onPath].find((file) => existsSync(file));
  if (found !== undefined) return found;
  throw new TrialgateError(
    'missing_prerequisite',
    'there is no uv, which installs Python packages: run `npx trialgate install`',
  );
}
