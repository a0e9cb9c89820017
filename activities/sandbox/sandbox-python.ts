import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

export type Python = {
  executable: string;
  /** The folder of its library, to be mounted; null when that is /usr. */
  prefix: string | null;
};

const run = promisify(execFile);
const ASK =
  'import os,sys;print(sys.version_info>=(3,9),os.path.realpath(sys._base_executable),sys.base_prefix,sep="\\n")';

/**
 * Returns the interpreter that a command starts, not a version manager's shim (which costs 50 ms for each start) and not a virtual environment.
 * Returns null when it does not run or is older than 3.9. `cli/install/python.ts` finds a Python for the GPU worker, which needs more.
 */
export async function probePython(candidate: string): Promise<Python | null> {
  try {
    const { stdout } = await run(candidate, ['-I', '-S', '-c', ASK], { timeout: 20_000 });
    const [recent, executable, prefix] = stdout.trim().split('\n');
    if (recent !== 'True' || !executable || !prefix) return null;
    return { executable, prefix: prefix === '/usr' ? null : prefix };
  } catch {
    return null;
  }
}

/** The candidates in order of preference. */
export function pythonCandidates(env: NodeJS.ProcessEnv = process.env): string[] {
  return [env.TRIALGATE_PYTHON, 'python3', '/usr/bin/python3', '/usr/local/bin/python3'].filter(
    (path) => path !== undefined,
  );
}
