import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { basename, dirname, extname, join, resolve } from 'node:path';
import { parse, YAMLParseError } from 'yaml';
import { TrialgateError } from '../../core/errors.ts';
import { meantPath } from '../../core/nearest-path.ts';
import { REPOSITORY } from '../../core/repository.ts';
import {
  AGENT_NAME,
  agentFile,
  isAgentFunction,
  isAgentPath,
  type AgentEntry,
  type AgentFile,
} from '../../core/run-config/agent-file.ts';
import { resolveNpm, resolvePython } from '../../core/run-config/dependencies.ts';
import { decodeUtf8 } from '../../core/utf8.ts';
import { validateFile } from '../../core/validate-file.ts';
import { agentsFolder } from './agents-folder.ts';

export type Agent = Omit<AgentFile, 'command' | 'function' | 'warm'> & {
  name: string;
  command: string[];
  /** True when the command is Python's, and its program can be prepared once for many trials. */
  isWarm: boolean;
  /** The folder that `{agents}` names, of which the agent can read everything: that of its file. Null for an agent within a run file. */
  folder: string | null;
};

const PLACEHOLDERS = ['python', 'agents', 'work', 'model', 'base_url', 'api_key'];

/**
 * Loads an agent: a bundled one by its name, one from a file, a Python function, or one within a run file, whose paths are absolute.
 * @throws TrialgateError `bad_input` that names the file and the field, or the known agents
 */
export async function loadAgent(entry: AgentEntry, bundled: string = agentsFolder): Promise<Agent> {
  if (typeof entry !== 'string')
    return checked(
      withCommand({ ...entry, name: entry.name ?? 'inline', folder: null }),
      'agents: the agent in the run file',
    );
  if (isAgentFunction(entry)) {
    const file = entry.slice(0, entry.lastIndexOf(':'));
    const name = basename(file, '.py')
      .replace(/[^a-z0-9]+/gi, '-')
      .toLowerCase();
    return checked(withCommand({ ...agentFile.parse({ function: resolve(entry) }), name, folder: null }), file);
  }
  const isFile = isAgentPath(entry);
  const file = isFile ? resolve(entry) : join(bundled, `${entry}.yaml`);
  if (!isFile && !AGENT_NAME.test(entry))
    throw new TrialgateError('bad_input', `agents: ${JSON.stringify(entry)} is not an agent's name`);
  const bytes = await readFile(file).catch(async (cause: unknown) => {
    const known = (await listAgents(bundled)).join(', ') || 'none';
    const others = isFile ? '' : ` (known agents: ${known}; one of your own is named by the path of its file)`;
    if (existsSync(file))
      throw new TrialgateError('bad_input', `agents: ${file} cannot be read: name the agent's file`, { cause });
    const meant = isFile ? await meantPath(file) : '';
    throw new TrialgateError('bad_input', `agents: there is no ${file}${others}${meant}`, { cause });
  });
  const { name, ...agent } = validateFile(agentFile, parseYaml(decodeUtf8(bytes, file), file), file);
  const named = basename(file, extname(file));
  if (name !== undefined && name !== named && !isFile)
    throw new TrialgateError('bad_input', `${file}: name: is ${name}, but the file says ${named}`);
  const folder = dirname(file);
  requireOwnFolder(file, 'an agent');
  return checked(withCommand({ ...resolveAgent(agent, folder), name: name ?? named, folder }), file);
}

/** The mounts of a function agent: its own file's folder, and the program that calls it. */
const FUNCTION_MOUNTS = { code: 'function', runner: 'trialgate' } as const;

/** Returns the agent with a command that only imports the file of its function; null for an agent that is no function. */
export function importOnly(agent: Agent): Agent | null {
  const { runner } = FUNCTION_MOUNTS;
  const [python, ...given] = agent.command;
  const at = given.indexOf(`{mounts.${runner}}/function_agent.py`);
  if (python === undefined || at === -1) return null;
  // As when the program itself is started, its folder is the first on the path, in place of the current one.
  const script = 'import sys; sys.path[0] = sys.argv[1]; import function_agent; function_agent.load(*sys.argv[2:])';
  return {
    ...agent,
    isWarm: false,
    success_exit_codes: [0],
    command: [python, '-B', '-c', script, `{mounts.${runner}}`, ...given.slice(at + 1)],
  };
}

/** Returns the agent with the command that calls its function. */
function withCommand({
  command,
  function: given,
  warm = true,
  ...agent
}: AgentFile & Pick<Agent, 'name' | 'folder'>): Agent {
  if (given === undefined) return { ...agent, command: command ?? [], isWarm: false };
  const at = given.lastIndexOf(':');
  const file = given.slice(0, at);
  if (!existsSync(file)) throw new TrialgateError('bad_input', `agents: there is no file ${file}`);
  requireOwnFolder(file, 'an agent');
  const { code, runner } = FUNCTION_MOUNTS;
  return {
    ...agent,
    isWarm: warm,
    command: [
      '{python}',
      '-B',
      `{mounts.${runner}}/function_agent.py`,
      `{mounts.${code}}/${basename(file)}`,
      given.slice(at + 1),
    ],
    mounts: { ...agent.mounts, [code]: dirname(file), [runner]: join(agentsFolder, 'scripts') },
  };
}

/**
 * Refuses a file beside the deployment's own files, because the program of the file can read all of its folder.
 * @throws TrialgateError `bad_input`
 */
export function requireOwnFolder(file: string, what: string): void {
  const folder = dirname(file);
  if (!existsSync(join(folder, '.trialgate')) && !`${REPOSITORY}/`.startsWith(`${folder}/`)) return;
  throw new TrialgateError(
    'bad_input',
    `${file}: ${what} can read all of its file's folder, and ${folder} has the deployment's own files: put the file into a folder of its own`,
  );
}

/** Returns the agent with its relative paths resolved from `base`. */
export function resolveAgent<A extends Pick<AgentFile, 'mounts' | 'function' | 'python' | 'npm'>>(
  agent: A,
  base: string,
): A {
  const from = (path: string) => resolve(base, path);
  return {
    ...agent,
    mounts: Object.fromEntries(Object.entries(agent.mounts).map(([name, path]) => [name, from(path)])),
    ...(agent.function === undefined ? {} : { function: from(agent.function) }),
    ...(agent.python === undefined ? {} : { python: resolvePython(agent.python, from) }),
    ...(agent.npm === undefined ? {} : { npm: resolveNpm(agent.npm, from) }),
  };
}

export async function listAgents(folder: string = agentsFolder): Promise<string[]> {
  const files = await readdir(folder).catch(() => []);
  return files
    .filter((file) => file.endsWith('.yaml'))
    .map((file) => file.slice(0, -'.yaml'.length))
    .toSorted();
}

/** Refuses unknown placeholders and mounts that do not exist. */
function checked(agent: Agent, source: string): Agent {
  const known = [
    ...PLACEHOLDERS.filter((each) => each !== 'agents' || agent.folder !== null),
    ...(agent.npm === undefined ? [] : ['node_modules']),
    ...Object.keys(agent.mounts).map((name) => `mounts.${name}`),
  ];
  for (const value of [...agent.command, ...Object.values(agent.env)]) {
    for (const [whole, placeholder = ''] of value.matchAll(PLACEHOLDER)) {
      if (!known.includes(placeholder))
        throw new TrialgateError('bad_input', `${source}: unknown placeholder ${whole}; there are ${known.join(', ')}`);
    }
  }
  for (const [name, path] of Object.entries(agent.mounts))
    if (!existsSync(path)) throw new TrialgateError('bad_input', `${source}: mounts.${name}: there is no ${path}`);
  return agent;
}

/** Matches a placeholder. */
export const PLACEHOLDER = /\{([a-z_]+(?:\.[a-z0-9_-]+)?)\}/g;

function parseYaml(text: string, file: string): unknown {
  try {
    return parse(text);
  } catch (error) {
    if (!(error instanceof YAMLParseError)) throw error;
    throw new TrialgateError('bad_input', `${file}:${error.linePos?.[0].line ?? 1}: ${error.message.split('\n')[0]}`, {
      cause: error,
    });
  }
}
