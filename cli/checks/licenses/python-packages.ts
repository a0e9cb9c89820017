import { z } from 'zod';
import { content, lockFile, LOCKS, type Lock } from '../../install/locks.ts';
import { LICENSES_ELSEWHERE } from './elsewhere.ts';
import { spdxOf, type Package } from './policy.ts';

export const installedPackages = z.array(
  z.object({ name: z.string(), version: z.string(), licenses: z.array(z.string()) }),
);
export type InstalledPackage = z.infer<typeof installedPackages>[number];

/** Returns the packages that the locks name, each version once. */
export function lockedPackages(locks: readonly Lock[] = LOCKS): { name: string; version: string }[] {
  const lines = locks.flatMap((lock) => [...content(lockFile(lock)).matchAll(/^([A-Za-z0-9._-]+)==([^\s;]+)/gm)]);
  return [...new Map(lines.map(([line, name = '', version = '']) => [line, { name, version }])).values()];
}

/** Returns each locked package with the license of the installed one, else that of `LICENSES_ELSEWHERE`, else undefined. */
export function pythonPackages(
  installed: readonly InstalledPackage[],
  locked = lockedPackages(),
): (Omit<Package, 'license'> & { license: string | null | undefined })[] {
  const licenseOf = new Map(
    installed.map(({ name, licenses }) => [
      normal(name),
      licenses.length > 0 ? licenses.map(spdxOf).join(' AND ') : null,
    ]),
  );
  return locked.map(({ name, version }) => ({
    name,
    version,
    license: licenseOf.has(normal(name)) ? licenseOf.get(normal(name)) : LICENSES_ELSEWHERE[normal(name)],
  }));
}

/** Returns one spelling for a Python package's name, which may be written in several. */
const normal = (name: string): string => name.toLowerCase().replaceAll(/[-_.]+/g, '-');
