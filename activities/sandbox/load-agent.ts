import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { basename, dirname, extname, join, resolve } from 'node:path';
import { parse, YAMLParseError } from 'yaml';
import { TrialgateError } from '../../core/errors.ts';
import { REPOSITORY } from '../../core/repository.ts';
import {
  AGENT_NAME,
  agentFile,
  isAgentPath,
  type AgentEntry,
  type AgentFile,
} from '../../core/run-config/agent-file.ts';
import { validateFile } from '../../core/validate-file.ts';
import { agentsFolder } from './agents-folder.ts';

export type Agent = AgentFile & {
  name: string;
  /** The folder that `{agents}` names, of which the agent can read everything: that of its file. Null for an agent within a run file. */
  folder: string | null;
};

const PLACEHOLDERS = ['python', 'agents', 'work', 'model', 'base_url', 'api_key'];

/**
 * Loads an agent: a bundled one by its name, one from a file, or one within a run file, whose paths are absolute.
 * @throws TrialgateError `bad_input` that names the file and the field, or the known agents
 */
export async function loadAgent(entry: AgentEntry, bundled: string = agentsFolder): Promise<Agent> {
  if (typeof entry !== 'string')
    return checked({ ...entry, name: entry.name ?? 'inline', folder: null }, 'agents: the agent in the run file');
  const isFile = isAgentPath(entry);
  const file = isFile ? resolve(entry) : join(bundled, `${entry}.yaml`);
  if (!isFile && !AGENT_NAME.test(entry))
    throw new TrialgateError('bad_input', `agents: ${JSON.stringify(entry)} is not an agent's name`);
  const text = await readFile(file, 'utf8').catch(async (cause: unknown) => {
    const known = (await listAgents(bundled)).join(', ') || 'none';
    const others = isFile ? '' : ` (known agents: ${known}; one of your own is named by the path of its file)`;
    throw new TrialgateError('bad_input', `agents: there is no ${file}${others}`, { cause });
  });
  const { name, ...agent } = validateFile(agentFile, parseYaml(text, file), file);
  const named = basename(file, extname(file));
  if (name !== undefined && name !== named && !isFile)
    throw new TrialgateError('bad_input', `${file}: name: is ${name}, but the file says ${named}`);
  const folder = dirname(file);
  if (existsSync(join(folder, '.trialgate')) || `${REPOSITORY}/`.startsWith(`${folder}/`))
    throw new TrialgateError(
      'bad_input',
      `${file}: an agent can read all of its file's folder, and ${folder} has the deployment's own files: put the file into a folder of its own`,
    );
  return checked({ ...agent, name: name ?? named, folder, mounts: resolveMounts(agent, folder) }, file);
}

/** Returns the paths of an agent's mounts, resolved from `base`. */
export const resolveMounts = ({ mounts }: Pick<AgentFile, 'mounts'>, base: string): Record<string, string> =>
  Object.fromEntries(Object.entries(mounts).map(([name, path]) => [name, resolve(base, path)]));

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
