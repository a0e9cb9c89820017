import { z } from 'zod';

const path = z.string().min(1);
const packages = z.array(z.string().min(1)).min(1);

const exactlyOne = (keys: string[]) => (given: object) =>
  keys.filter((key) => key in given && Reflect.get(given, key) !== undefined).length === 1;

/**
 * The Python packages that a program imports. They are installed once into an environment that programs with the same packages share; `venv`
 * names an environment that exists. Relative paths are relative to the file that says this.
 */
export const pythonDependencies = z
  .strictObject({
    /** A requirements file, or the requirements themselves. */
    requirements: z.union([path, packages]).optional(),
    /** A `pyproject.toml`, whose `project.dependencies` are installed. */
    pyproject: path.optional(),
    /** The folder of a virtual environment, which is used as it is. */
    venv: path.optional(),
  })
  .refine(
    exactlyOne(['requirements', 'pyproject', 'venv']),
    'say exactly one of `requirements`, `pyproject` and `venv`',
  );
export type PythonDependencies = z.output<typeof pythonDependencies>;

/** The packages of npm that a program uses. They are installed once into a folder that programs with the same packages share. */
export const npmDependencies = z
  .strictObject({
    /** A `package.json`; a `package-lock.json` beside it fixes the versions. */
    package_json: path.optional(),
    /** Packages such as `@openai/codex@0.46.0`. */
    packages: packages.optional(),
  })
  .refine(exactlyOne(['package_json', 'packages']), 'say exactly one of `package_json` and `packages`');
export type NpmDependencies = z.output<typeof npmDependencies>;

/** Returns the dependencies with their paths resolved. */
export function resolvePython(given: PythonDependencies, resolve: (path: string) => string): PythonDependencies {
  const { requirements, pyproject, venv } = given;
  if (typeof requirements === 'string') return { requirements: resolve(requirements) };
  if (pyproject !== undefined) return { pyproject: resolve(pyproject) };
  return venv === undefined ? given : { venv: resolve(venv) };
}

export const resolveNpm = (given: NpmDependencies, resolve: (path: string) => string): NpmDependencies =>
  given.package_json === undefined ? given : { package_json: resolve(given.package_json) };
