import { z } from 'zod';
import { content, lockFile, LOCKS, type Lock } from '../../install/locks.ts';
import { LICENCES_ELSEWHERE } from './elsewhere.ts';
import { spdxOf, type Package } from './policy.ts';

export const installedPackages = z.array(z.object({ name: z.string(), version: z.string(), licences: z.array(z.string()) }));
export type InstalledPackage = z.infer<typeof installedPackages>[number];

/** The packages that the locks name, each version once. */
export function lockedPackages(locks: readonly Lock[] = LOCKS): { name: string; version: string }[] {
  const lines = locks.flatMap((lock) => [...content(lockFile(lock)).matchAll(/^([A-Za-z0-9._-]+)==([^\s;]+)/gm)]);
  return [...new Map(lines.map(([line, name = '', version = '']) => [line, { name, version }])).values()];
}

/** Each locked package by the licence that the installed one names, else by `LICENCES_ELSEWHERE`; undefined where neither knows it. */
export function pythonPackages(installed: readonly InstalledPackage[], locked = lockedPackages()): (Omit<Package, 'licence'> & { licence: string | null | undefined })[] {
  const said = new Map(installed.map(({ name, licences }) => [normal(name), licences.length > 0 ? licences.map(spdxOf).join(' AND ') : null]));
  return locked.map(({ name, version }) => ({ name, version, licence: said.has(normal(name)) ? said.get(normal(name)) : LICENCES_ELSEWHERE[normal(name)] }));
}

/** Python's packages have one name in several spellings. */
const normal = (name: string): string => name.toLowerCase().replaceAll(/[-_.]+/g, '-');
