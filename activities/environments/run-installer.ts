import { execFile } from 'node:child_process';
import { appendFile, mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { TrialgateError } from '../../core/errors.ts';
import { makeOnce, type MakeOptions } from './make-once.ts';

const run = promisify(execFile);

export type InstallOptions = MakeOptions & {
  /** The deployment's folder. */
  home: string;
};

/** Returns the folder `environments/{key}`, made by `make` unless it exists. What installers print goes to a log. */
export function installOnce(
  key: string,
  what: string,
  { home, ...options }: InstallOptions,
  make: (folder: string, exec: (command: string[], cwd?: string) => Promise<void>) => Promise<void>,
): Promise<string> {
  const log = join(home, 'logs', 'environments.log');
  const lines = { before: `installing ${what} (once; log: ${log})`, after: `installed ${what}` };
  return makeOnce(join(home, 'environments', key), lines, options, async (draft, signal) => {
    await mkdir(dirname(log), { recursive: true });
    await make(draft, (command, cwd) => mustRun(command, { what, log, signal, cwd }));
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
