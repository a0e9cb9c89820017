import { readFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { REPOSITORY } from '../../../core/repository.ts';
import type { Package } from './policy.ts';

const lockfile = z.object({
  packages: z.record(
    z.string(),
    z.object({ version: z.string().optional(), license: z.string().optional(), link: z.boolean().optional() }),
  ),
});

/** Returns each package of package-lock.json, also those of other platforms, with the license that the lock has from its metadata. */
export function npmPackages(lock = path.join(REPOSITORY, 'package-lock.json')): Package[] {
  const { packages } = lockfile.parse(JSON.parse(readFileSync(lock, 'utf8')));
  return Object.entries(packages).flatMap(([where, { version = '', license = null, link }]) => {
    const [, name] = /(?:^|\/)node_modules\/((?:@[^/]+\/)?[^/]+)$/.exec(where) ?? [];
    return name && !link ? [{ name, version, license }] : [];
  });
}
