import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { TrialgateError } from '../../core/errors.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { bubblewrapArgv, findBubblewrap } from './bubblewrap.ts';
import { findCgroupParents, type CgroupParents } from './cgroup.ts';
import { probePython, pythonCandidates, type Python } from './sandbox-python.ts';

/**
 * The form of a sandbox's isolation from its host. `bubblewrap`: it has files and processes of its own. `user`: it has a user of its own (under
 * root). `none`: it has only limits and an environment of its own.
 */
export type Isolation = {
  kind: 'bubblewrap' | 'user' | 'none';
  bwrap: string | null;
  /** True when each sandbox gets a user id of its own. */
  ownUser: boolean;
  python: Python;
  /** The compiled filter of system calls. It is null where there is none. */
  seccomp: string | null;
  /** The place where sandboxes get control groups of their own. It is null where none can be made. */
  cgroup: CgroupParents | null;
  /** The reason why bubblewrap is not used. It is null when bubblewrap is used. */
  trouble: string | null;
  /** The sentence that a worker logs once, for people. */
  statement: string;
};

const run = promisify(execFile);
const PROBE_UID = 65534;

/** The filter of system calls that `npx trialgate install` compiles. */
export const SECCOMP_FILTER = join(REPOSITORY, '.trialgate/tools/seccomp.bpf');

let detected: Promise<Isolation> | null = null;

/** Returns the strongest isolation that works here. It is tried once for each process. */
export function isolation(): Promise<Isolation> {
  return (detected ??= detectIsolation());
}

/**
 * Finds the isolation that works here.
 * @throws TrialgateError `missing_prerequisite` when no Python can be run in a sandbox
 */
export async function detectIsolation(
  options: { bwrap?: string | null; seccomp?: string | null; cgroup?: null } = {},
): Promise<Isolation> {
  const bwrap = options.bwrap === undefined ? findBubblewrap() : options.bwrap;
  const filter = options.seccomp === undefined ? findSeccompFilter() : options.seccomp;
  const root = process.getuid?.() === 0;
  const choices: Choice[] = [];
  if (bwrap && root)
    choices.push({ kind: 'bubblewrap', bwrap, ownUser: true, seccomp: filter, statement: STATEMENTS.bubblewrap });
  if (bwrap)
    choices.push({ kind: 'bubblewrap', bwrap, ownUser: false, seccomp: filter, statement: STATEMENTS.bubblewrap });
  if (root) choices.push({ kind: 'user', bwrap: null, ownUser: true, seccomp: null, statement: STATEMENTS.user });
  choices.push({ kind: 'none', bwrap: null, ownUser: false, seccomp: null, statement: STATEMENTS.none });

  const pythons: Python[] = [];
  for (const candidate of pythonCandidates()) {
    const python = await probePython(candidate);
    if (python && !pythons.some(({ executable }) => executable === python.executable)) pythons.push(python);
  }
  const cgroup = options.cgroup === null ? null : await findCgroupParents();
  let trouble = bwrap ? null : 'no `bwrap` on the PATH, none installed by `npx trialgate install`';
  for (const choice of choices) {
    for (const python of pythons) {
      const failure = await tryOut(choice, python);
      // A process of the worker's own user could leave its control group.
      const held = choice.kind === 'none' ? null : cgroup;
      if (failure === null) {
        const statement = [choice.statement, ...statementsOfLacks(choice, held)].join(' ');
        return { ...choice, statement, python, cgroup: held, trouble: choice.kind === 'bubblewrap' ? null : trouble };
      }
      if (choice.kind === 'bubblewrap') trouble ??= failure;
    }
  }
  throw new TrialgateError(
    'missing_prerequisite',
    'no Python 3.9 or newer runs in a sandbox: install python3, or set TRIALGATE_PYTHON to one that every user can reach',
  );
}

type Choice = Omit<Isolation, 'python' | 'cgroup' | 'trouble'>;

/** Returns null when Python runs in such a sandbox, otherwise the reason why it does not. */
async function tryOut({ kind, bwrap, ownUser, seccomp }: Choice, python: Python): Promise<string | null> {
  const user = ownUser ? PROBE_UID : null;
  const wrap =
    kind === 'bubblewrap' && bwrap
      ? bubblewrapArgv({
          bwrap,
          uid: user,
          python,
          mounts: [],
          cwd: '/',
          hostNetwork: false,
          ...(seccomp ? { seccompFd: 4 } : {}),
        })
      : [];
  const opened = seccomp ? ['/bin/sh', '-c', 'exec "$@" 4<"$0"', seccomp] : [];
  const [command, ...args] = [...opened, ...wrap, python.executable, '-I', '-S', '-c', 'import json'];
  const ids = kind === 'user' ? { uid: PROBE_UID, gid: PROBE_UID } : {};
  try {
    await run(command ?? '', args, { timeout: 20_000, cwd: '/', env: { PATH: '/usr/bin:/bin' }, ...ids });
    return null;
  } catch (error) {
    return reasonOf(error, wrap[0] ?? python.executable);
  }
}

/** Returns the last line of the program's output. A program may end without output. */
function reasonOf(error: unknown, program: string): string {
  if (!(error instanceof Error)) return String(error);
  const lastLine = 'stderr' in error ? String(error.stderr).trim().split('\n').at(-1) : '';
  return lastLine || ('code' in error ? `${program} ended with ${String(error.code)}` : error.message);
}

/**
 * Requires bubblewrap, unless the user allowed to run without.
 * @throws TrialgateError `missing_prerequisite`
 */
export function requireBubblewrap({ kind, trouble }: Pick<Isolation, 'kind' | 'trouble'>, unsandboxed: boolean): void {
  if (kind === 'bubblewrap' || unsandboxed) return;
  throw new TrialgateError(
    'missing_prerequisite',
    `agents run under bubblewrap, which does not work here (${trouble}): install it (Debian, Ubuntu: \`apt-get install bubblewrap\`) or allow ` +
      'user namespaces. If you trust the agents and the model, you can run them without bubblewrap: add --unsandboxed to `up`, `quickstart` or ' +
      '`worker` (TRIALGATE_UNSANDBOXED=true, `unsandboxed: true`). `npx trialgate doctor` lists what agents can then do',
  );
}

const findSeccompFilter = (): string | null => (existsSync(SECCOMP_FILTER) ? SECCOMP_FILTER : null);

/** Returns a sentence for each protection of the kernel that sandboxes of this kind lack on this machine. */
function statementsOfLacks({ kind, seccomp }: Choice, cgroup: CgroupParents | null): string[] {
  const filter = 'There is no filter of system calls: call `npx trialgate install` to make one.';
  const limits =
    "No control groups can be used here, so the kernel does not limit a sandbox's memory and processor time: memory is counted twice a second " +
    '(`npx trialgate doctor` says what that means).';
  return [...(kind === 'bubblewrap' && seccomp === null ? [filter] : []), ...(cgroup === null ? [limits] : [])];
}

const STATEMENTS = {
  bubblewrap:
    'Sandboxes run under bubblewrap: each sees its own files and processes. An agent reaches the gateway and nothing else, unless its file or ' +
    'the run file says `network: host` or lists hosts.',
  user:
    'bubblewrap is not here or does not work: each sandbox is a normal process with its own user, and sees the files ' +
    'of this machine that every user may read. Install bubblewrap to prevent that.',
  none:
    'bubblewrap is not here or does not work: sandboxes are normal processes of this user, and see all its files. ' +
    'Run only agents and models that you trust, or install bubblewrap.',
};
