import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { appendFile, mkdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { TrialgateError } from '../../core/errors.ts';

const run = promisify(execFile);

export type InstallOptions = {
  /** The deployment's folder. */
  home: string;
  signal: AbortSignal;
  /** Is told what is installed, and how long it took. */
  report?: (line: string) => void;
};

/** Sets the folder's time to now, because `gc` removes environments that nothing used for 30 days. Returns false if there is no folder. */
async function markUsed(folder: string): Promise<boolean> {
  const now = new Date();
  return utimes(folder, now, now).then(
    () => true,
    () => false,
  );
}

type UnderWay = { done: Promise<string>; waiters: number; stop: AbortController };

/** The installations under way in this process, so that many trials that begin together wait for one. */
const underWay = new Map<string, UnderWay>();

/**
 * Returns the folder `environments/{key}`, made by `make` unless it exists. It is made under another name and renamed when it is complete, so
 * that an installation that was interrupted, or runs on another worker too, is never seen half made. It goes on while somebody waits for it.
 */
export async function installOnce(
  key: string,
  what: string,
  { home, signal, report = console.error }: InstallOptions,
  make: (folder: string, exec: (command: string[], cwd?: string) => Promise<void>) => Promise<void>,
): Promise<string> {
  const folder = join(home, 'environments', key);
  if (await markUsed(folder)) return folder;
  const known = underWay.get(folder) ?? begin();
  known.waiters += 1;
  try {
    return await Promise.race([known.done, aborted(signal)]);
  } finally {
    known.waiters -= 1;
    if (known.waiters === 0) known.stop.abort();
  }

  function begin(): UnderWay {
    const stop = new AbortController();
    const done = install(stop.signal).finally(() => underWay.delete(folder));
    done.catch(() => {});
    const started = { done, waiters: 0, stop };
    underWay.set(folder, started);
    return started;
  }

  async function install(stopped: AbortSignal): Promise<string> {
    const draft = `${folder}.${randomUUID().slice(0, 8)}.partial`;
    const log = join(home, 'logs', 'environments.log');
    const started = performance.now();
    report(`installing ${what} (once; log: ${log})`);
    await mkdir(draft, { recursive: true });
    await mkdir(dirname(log), { recursive: true });
    try {
      await make(draft, (command, cwd) => mustRun(command, { what, log, signal: stopped, cwd }));
      // Another worker may have been faster.
      await rename(draft, folder).catch(async (error: unknown) => {
        if (!(await stat(folder).catch(() => null))) throw error;
      });
    } finally {
      await rm(draft, { recursive: true, force: true });
    }
    report(`installed ${what} in ${((performance.now() - started) / 1000).toFixed(0)} s`);
    return folder;
  }
}

/** Rejects when the signal aborts. */
function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const end = () => reject(signal.reason instanceof Error ? signal.reason : new Error('cancelled'));
    if (signal.aborted) end();
    else signal.addEventListener('abort', end, { once: true });
  });
}

/** uv trusts the certificates of the system, as pip and npm can be told to: a proxy may have its own. */
const ENVIRONMENT = { ...process.env, UV_SYSTEM_CERTS: '1', UV_NATIVE_TLS: '1' };

async function mustRun(
  [file = '', ...args]: string[],
  { what, log, signal, cwd }: { what: string; log: string; signal: AbortSignal; cwd: string | undefined },
): Promise<void> {
  await appendFile(log, `$ ${[file, ...args].join(' ')}\n`);
  const outputs = await run(file, args, { signal, cwd, env: ENVIRONMENT, maxBuffer: 64 * 2 ** 20 }).catch(
    async (error: unknown) => {
      signal.throwIfAborted();
      const text = error instanceof Error && 'stderr' in error ? String(error.stderr) || error.message : String(error);
      await appendFile(log, text);
      throw new TrialgateError('bad_input', `${what} cannot be installed: ${reasonIn(text)} (all output: ${log})`, {
        cause: error,
      });
    },
  );
  await appendFile(log, outputs.stdout + outputs.stderr);
}

/** Returns the sentence in which an installer says what it could not do. uv marks its parts with box characters, and npm its lines with `npm error`. */
function reasonIn(text: string): string {
  const lines = text
    .split('\n')
    .map((line) => line.replace(/^(?:npm (?:error|ERR!)|[\s│├─▶╰×✗])+/u, '').trim())
    .filter((line) => line !== '' && !/^(?:Resolved|Prepared|Using|Creating|Activate|A complete log)/.test(line));
  return lines.slice(0, 4).join(' ').slice(0, 500) || 'the installer said nothing';
}
