import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { INSTALLS } from '../../../cli/folders.ts';
import { unpackDebianPackages } from '../../../cli/install/debian-package.ts';

const FOLDER = join(INSTALLS.root, 'prometheus');
const LOG = join(INSTALLS.root, 'logs/prometheus.log');

/** Returns why Prometheus cannot be fetched here; null where it can. */
export function noPrometheus(): string | null {
  return existsSync('/usr/bin/apt-get') && existsSync('/usr/bin/dpkg')
    ? null
    : "Prometheus is unpacked from Debian's packages, and apt-get is not here";
}

/** Returns the path of `prometheus` or `promtool`, which Debian's package has, in a folder of the installs. */
export async function prometheusProgram(name: 'prometheus' | 'promtool', signal: AbortSignal): Promise<string> {
  const program = join(FOLDER, 'root/usr/bin', name);
  if (existsSync(program)) return program;
  mkdirSync(INSTALLS.root, { recursive: true });
  const partial = mkdtempSync(join(INSTALLS.root, 'prometheus-'));
  try {
    if (!(await unpackDebianPackages(['prometheus'], partial, LOG, signal)))
      throw new Error(`Prometheus cannot be fetched from Debian's packages: see ${LOG}`);
    if (!existsSync(FOLDER)) renameSync(partial, FOLDER);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
  return program;
}
