import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { copyFile, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { decodeUtf8, readUtf8 } from '../../core/utf8.ts';
import type { NpmDependencies } from '../../core/run-config/dependencies.ts';
import type { Environment } from './environment.ts';
import { installOnce, type InstallOptions } from './run-installer.ts';

/**
 * Returns the environment that has the packages of npm, and installs it if it does not exist yet. Install scripts do not run, because they
 * would run outside any sandbox. Its commands run with the Node of the worker.
 * @throws TrialgateError `bad_input` with the file or the installer's reason
 */
export async function npmEnvironment(given: NpmDependencies, options: InstallOptions): Promise<Environment> {
  const { manifest, lock, what } = await manifestOf(given);
  const key = createHash('sha256')
    .update(`${process.version}\n${manifest}\n${lock?.text ?? ''}`)
    .digest('hex')
    .slice(0, 16);
  const folder = await installOnce(`npm-${key}`, `npm packages (${what})`, options, async (draft, exec) => {
    await writeFile(join(draft, 'package.json'), manifest);
    if (lock) await copyFile(lock.file, join(draft, 'package-lock.json'));
    await exec(
      ['npm', lock ? 'ci' : 'install', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'],
      draft,
    );
  });
  const nodeModules = join(folder, 'node_modules');
  const node = dirname(process.execPath);
  return { folders: [folder, node], path: [join(nodeModules, '.bin'), node], python: null, nodeModules };
}

async function manifestOf({ package_json: file, packages = [] }: NpmDependencies) {
  if (file === undefined) {
    const dependencies = Object.fromEntries(packages.map(nameAndVersion));
    return { manifest: JSON.stringify({ private: true, dependencies }), lock: null, what: packages.join(', ') };
  }
  const bytes = await readFile(file).catch((cause: unknown) => {
    throw new TrialgateError('bad_input', `npm: there is no file ${file}`, { cause });
  });
  const manifest = decodeUtf8(bytes, file);
  const beside = join(dirname(file), 'package-lock.json');
  const lock = existsSync(beside) ? { file: beside, text: await readUtf8(beside) } : null;
  return { manifest, lock, what: file };
}

/** `@scope/name@1.2.3` → name and version; without a version, the newest. */
function nameAndVersion(text: string): [string, string] {
  const at = text.lastIndexOf('@');
  return at > 0 ? [text.slice(0, at), text.slice(at + 1)] : [text, 'latest'];
}
