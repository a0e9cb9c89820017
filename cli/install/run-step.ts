import { spawn } from 'node:child_process';
import { appendFileSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import { TrialgateError } from '../../core/errors.ts';

export type Output = { code: number; text: string };

/** Shows a step's progress as one short line. */
export type ReportProgress = (line: string) => void;

/** Runs a command and appends its output to `log`. Aborting ends its process group. */
export async function runLogged(
  log: string,
  command: string[],
  options: { signal?: AbortSignal; report?: ReportProgress; env?: NodeJS.ProcessEnv; cwd?: string } = {},
): Promise<Output> {
  mkdirSync(path.dirname(log), { recursive: true });
  appendFileSync(log, `$ ${command.join(' ')}\n`);
  options.signal?.throwIfAborted();
  const [file = '', ...args] = command;
  const env = options.env ?? {
    ...process.env,
    PIP_DISABLE_PIP_VERSION_CHECK: '1',
    PYTHONUNBUFFERED: '1',
    PIP_ROOT_USER_ACTION: 'ignore',
  };
  const child = spawn(file, args, { env, cwd: options.cwd, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
  const end = (): void => {
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, 'SIGKILL');
  };
  options.signal?.addEventListener('abort', end, { once: true });
  let text = '';
  const take = (data: Buffer): void => {
    appendFileSync(log, data);
    text = (text + data.toString('utf8')).slice(-200_000);
    const line = data
      .toString('utf8')
      .trim()
      .split(/[\r\n]+/)
      .at(-1)
      ?.trim();
    if (line) options.report?.(shorten(line));
  };
  child.stdout.on('data', take);
  child.stderr.on('data', take);
  const code = await new Promise<number>((resolve) => {
    child.once('error', (error) => {
      text += error.message;
      resolve(127);
    });
    child.once('close', (status) => resolve(status ?? 137));
  });
  options.signal?.removeEventListener('abort', end);
  options.signal?.throwIfAborted();
  return { code, text };
}

/** Runs a step. @throws TrialgateError with the reason when it fails. */
export async function mustRun(
  step: string,
  log: string,
  command: string[],
  options: { signal?: AbortSignal; cwd?: string } = {},
): Promise<void> {
  const output = await runLogged(log, command, options);
  if (output.code !== 0) throw failure(step, output, log);
}

/** Returns a short line with the package or file that pip works on. */
function shorten(line: string): string {
  const known =
    /^(Collecting|Downloading|Using cached|Building wheel for|Installing collected packages|Resolved|Prepared|Installed)\b:?\s*(\S+)?(.*)$/.exec(
      line,
    );
  if (!known) return line.slice(0, 60);
  const [, verb = '', what = '', rest = ''] = known;
  if (verb.startsWith('Installing')) return `unpacking ${rest.split(',').length + 1} packages`;
  const size = /\([\d.]+ [kMG]B\)/.exec(rest)?.[0] ?? '';
  return `${verb} ${what
    .split('/')
    .at(-1)
    ?.replace(/-py\d.*$|-cp\d.*$/, '')} ${size}`
    .trim()
    .slice(0, 60);
}

const NETWORK =
  /NewConnectionError|Temporary failure in name resolution|Name or service not known|Max retries exceeded|ConnectTimeout|Connection (refused|reset|timed out)|Network is unreachable|ReadTimeout|ProxyError|SSLError|dns error|error sending request|Could not resolve/i;
const NO_BUILD = /No matching distribution found for (\S+)/;
/** pip prints the package before the digests, uv in the sentence itself. */
const OTHER_FILE = /^\s*(\S+==\S+).*:\s*\n\s*Expected sha256|Hash mismatch for `([^`]+)`/m;

/** Returns the error for a step that failed. */
export function failure(step: string, { text }: Output, log: string): TrialgateError {
  return new TrialgateError('missing_prerequisite', `${step} failed: ${reasonIn(text)} (all output: ${log})`);
}

function reasonIn(text: string): string {
  if (/No space left on device|ENOSPC/i.test(text)) return 'the disk is full: free some space and try again';
  const [, fromPip, fromUv] = OTHER_FILE.exec(text) ?? [];
  const other = fromPip ?? fromUv;
  if (other) {
    return `the package index gave a file for ${other} that is not the locked one (its SHA-256 differs), so nothing of this step was installed. \
Try again: the download may have been damaged. If it happens again, find the index that delivers this file (\`pip config list\`) and do not trust it; \
gpu-workers/README.md explains how to make a new lock`;
  }
  if (NETWORK.test(text))
    return 'the package index is out of reach: check the network, a proxy, and `pip config list`; then try again';
  const missing = NO_BUILD.exec(text)?.[1];
  if (missing)
    return `the package index has no ${missing} for this Python (an index may lag behind): check \`pip config list\` and TRIALGATE_PYTHON`;
  const lines = text
    .trim()
    .split('\n')
    .filter((line) => line.trim());
  const last = lines.findLast((line) => /error/i.test(line)) ?? lines.at(-1) ?? 'no output';
  return last.trim().slice(0, 300);
}
