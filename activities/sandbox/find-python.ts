import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

export type Python = {
  executable: string;
  /** Where its library lives, to be mounted; null when that is /usr. */
  prefix: string | null;
};

const run = promisify(execFile);
const ASK =
  'import os,sys;print(sys.version_info>=(3,9),os.path.realpath(sys._base_executable),sys.base_prefix,sep="\\n")';

/** The interpreter itself, behind version managers' shims (which cost 50 ms a start) and virtual environments. */
export async function findPython(candidate: string): Promise<Python | null> {
  try {
    const { stdout } = await run(candidate, ['-I', '-S', '-c', ASK], { timeout: 20_000 });
    const [recent, executable, prefix] = stdout.trim().split('\n');
    if (recent !== 'True' || !executable || !prefix) return null;
    return { executable, prefix: prefix === '/usr' ? null : prefix };
  } catch {
    return null;
  }
}

/** In order of preference. */
export function pythonCandidates(env: NodeJS.ProcessEnv = process.env): string[] {
  return [env.TRIALGATE_PYTHON, 'python3', '/usr/bin/python3', '/usr/local/bin/python3'].filter(
    (path) => path !== undefined,
  );
}
