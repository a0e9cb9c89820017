import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { z } from 'zod';
import type { Bundle } from './workerd.ts';

const CONFIG = fileURLToPath(new URL('../../../deploy/wrangler.jsonc', import.meta.url));
const configured = z.looseObject({ compatibility_date: z.string(), compatibility_flags: z.array(z.string()) });
export type WorkerBundle = Bundle & {
  /** The size of the upload. */
  gzipBytes: string;
  remove: () => Promise<void>;
};

/** Bundles the Worker as `wrangler deploy` does, without deploying it. */
export async function bundleWorker(...flags: string[]): Promise<WorkerBundle> {
  const folder = await mkdtemp(path.join(tmpdir(), 'trialgate-worker-'));
  const wrangler = path.join(
    path.dirname(createRequire(import.meta.url).resolve('wrangler/package.json')),
    'bin/wrangler.js',
  );
  const env = { PATH: process.env.PATH, HOME: folder, WRANGLER_SEND_METRICS: 'false', CI: 'true' };
  const args = [wrangler, 'deploy', '--dry-run', '--outdir', folder, '--config', CONFIG, ...flags];
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: folder, env });
  const { compatibility_date, compatibility_flags } = configured.parse(await readConfig());
  return {
    script: path.join(folder, 'worker.js'),
    compatibilityDate: compatibility_date,
    compatibilityFlags: compatibility_flags,
    gzipBytes: /gzip: ([\d.]+ \w+)/.exec(stdout)?.[1] ?? 'unknown',
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}

async function readConfig(): Promise<unknown> {
  const { unstable_readConfig } = await import('wrangler');
  return unstable_readConfig({ config: CONFIG });
}
