import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { TrialgateError } from '../../core/errors.ts';

const run = promisify(execFile);

/** A call of git that failed. The message is what git printed. */
export class GitError extends Error {}

/** git was ended because it printed more than anybody needs, or because one of its files became larger than it may be. */
export class TooMuch extends GitError {}

type Options = {
  signal: AbortSignal;
  /** True for a call that reaches the repository's server: it uses the worker's own settings of git, such as its proxies and credentials. */
  usesOwnSettings?: boolean;
  env?: Record<string, string>;
  /** The most bytes that one file which git writes may have. */
  mostBytes?: number;
};

/** A shell's unit of `ulimit -f`. */
const BLOCK = 512;
/** Ignores the signal for a file that is too large, so that git gets an error and reports it. */
const LIMITED = `trap '' XFSZ && ulimit -f "$0" && exec git "$@"`;
/** A shell's exit code when there is no such program. */
const NOT_FOUND = 127;

/**
 * Runs git and returns what it printed. It is used only in folders that no agent can write to, because the settings in a repository can name
 * programs that git starts.
 * @throws GitError, of which TooMuch is one; TrialgateError `missing_prerequisite` when git is not installed; an error with the code ENOSPC when the disk is full
 */
export async function git(
  args: readonly string[],
  { signal, usesOwnSettings = false, env, mostBytes }: Options,
): Promise<string> {
  const [program, ...options] =
    mostBytes === undefined
      ? ['git', ...args]
      : ['/bin/sh', '-c', LIMITED, String(Math.ceil(mostBytes / BLOCK)), ...args];
  try {
    const { stdout } = await run(program, options, {
      signal,
      env: { ...(usesOwnSettings ? ownSettings() : noSettings()), ...ALWAYS, ...env },
      maxBuffer: 2 ** 28,
    });
    return stdout;
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof Error) || !('code' in error)) throw error;
    if (error.code === 'ENOENT' || error.code === NOT_FOUND)
      throw new TrialgateError(
        'missing_prerequisite',
        'git is not installed, and a task with a repository needs it (Debian, Ubuntu: `apt-get install git`)',
        { cause: error },
      );
    if (error.code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER') throw new TooMuch();
    const printed = 'stderr' in error ? String(error.stderr).trim() : error.message;
    // When git cannot write a whole file, it does not say why.
    if (/No space left on device|Disk quota exceeded|unable to write file/i.test(printed))
      throw Object.assign(new Error('the disk is full'), { code: 'ENOSPC' });
    if (/File too large/.test(printed)) throw new TooMuch(printed);
    throw new GitError(printed);
  }
}

/** Nothing asks a person, no transport runs a program that a URL or a submodule names, and no object is fetched when it is read. */
const ALWAYS = {
  GIT_NO_LAZY_FETCH: '1',
  LC_ALL: 'C',
  GIT_TERMINAL_PROMPT: '0',
  GIT_ALLOW_PROTOCOL: 'file:git:http:https:ssh',
};

const noSettings = (): NodeJS.ProcessEnv => ({
  PATH: process.env.PATH,
  HOME: '/nonexistent',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_ATTR_NOSYSTEM: '1',
});

/** Without the variables by which a hook or a shell leads git to another repository. */
const ownSettings = (): NodeJS.ProcessEnv =>
  Object.fromEntries(
    Object.entries(process.env).filter(
      ([name]) => !/^GIT_(?!SSH|SSL|PROXY|HTTP|ASKPASS|CONFIG_GLOBAL|CONFIG_SYSTEM|CONFIG_NOSYSTEM)/.test(name),
    ),
  );
