import type { AgentFile } from '../../core/run-config/agent-file.ts';
import { joined, type Environment } from './environment.ts';
import { npmEnvironment } from './npm.ts';
import { pythonEnvironment } from './python.ts';
import type { InstallOptions } from './run-installer.ts';

/** Returns the environment of an agent's packages; null when its file names none. It is installed if it does not exist yet. */
export async function agentEnvironment(
  { python, npm }: Pick<AgentFile, 'python' | 'npm'>,
  options: InstallOptions,
): Promise<Environment | null> {
  const environments = [
    ...(python === undefined ? [] : [await pythonEnvironment(python, options)]),
    ...(npm === undefined ? [] : [await npmEnvironment(npm, options)]),
  ];
  return environments.length === 0 ? null : joined(environments);
}
