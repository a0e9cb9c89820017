import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { INSTALLS } from '../../../cli/folders.ts';
import { runLogged } from '../../../cli/install/run-step.ts';
import { TrialgateError } from '../../../core/errors.ts';

const OWN = path.join(INSTALLS.tools, 'wrk');
const LIBRARY = 'libluajit-5.1.so.2';
const LOG = path.join(INSTALLS.root, 'logs/wrk.log');

export type Wrk = { file: string; env: NodeJS.ProcessEnv };

/** Returns wrk from the PATH, else from Debian's package, unpacked into our own folder and not installed in the system. */
export async function installWrk(signal: AbortSignal): Promise<Wrk> {
  const folders = (process.env['PATH'] ?? '').split(':').filter(Boolean);
  const onPath = folders
    .map((folder) => path.join(folder, 'wrk'))
    .find((file) => statSync(file, { throwIfNoEntry: false })?.isFile());
  if (onPath) return { file: onPath, env: process.env };
  const wrk = { file: path.join(OWN, 'wrk'), env: { ...process.env, LD_LIBRARY_PATH: OWN } };
  if (!existsSync(wrk.file)) await unpack(signal);
  return wrk;
}

async function unpack(signal: AbortSignal): Promise<void> {
  mkdirSync(INSTALLS.tools, { recursive: true });
  const folder = mkdtempSync(path.join(INSTALLS.tools, 'apt-'));
  try {
    const command = ['apt-get', '-o', 'APT::Sandbox::User=root', 'download', 'wrk', 'libluajit-5.1-2'];
    const fetched = await runLogged(LOG, command, { signal, cwd: folder });
    if (fetched.code !== 0)
      throw new TrialgateError(
        'missing_prerequisite',
        `wrk is not on the PATH, and its Debian package cannot be fetched (${LOG}): install wrk`,
      );
    const root = path.join(folder, 'root');
    for (const name of readdirSync(folder).filter((each) => each.endsWith('.deb')))
      await runLogged(LOG, ['dpkg', '-x', path.join(folder, name), root], { signal });
    const libraries = path.join(root, 'usr/lib');
    const library = readdirSync(libraries, { recursive: true, encoding: 'utf8' }).find((name) =>
      name.endsWith(LIBRARY),
    );
    if (!library)
      throw new TrialgateError('missing_prerequisite', `${LIBRARY} is not in Debian's package (${LOG}): install wrk`);
    mkdirSync(OWN, { recursive: true });
    copyFileSync(path.join(libraries, library), path.join(OWN, LIBRARY));
    copyFileSync(path.join(root, 'usr/bin/wrk'), path.join(OWN, 'wrk'));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
