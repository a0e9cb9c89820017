import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse, YAMLParseError } from 'yaml';
import { TrialgateError } from '../../core/errors.ts';
import { AGENT_NAME, agentFile, type Agent } from './agent-file.ts';

const PLACEHOLDERS = new Set(['python', 'agents', 'work', 'model', 'base_url', 'api_key']);

/**
 * Loads an agent.
 * @throws TrialgateError `bad_input` that names the file and the field, or the known agents
 */
export async function loadAgent(folder: string, name: string): Promise<Agent> {
  const file = join(folder, `${name}.yaml`);
  if (!AGENT_NAME.test(name))
    throw new TrialgateError('bad_input', `agents: ${JSON.stringify(name)} is not an agent's name`);
  const text = await readFile(file, 'utf8').catch(async () => {
    const known = (await listAgents(folder)).join(', ') || 'none';
    throw new TrialgateError('bad_input', `agents: there is no ${file} (known agents: ${known})`);
  });
  const parsed = agentFile.safeParse(parseYaml(text, file));
  if (!parsed.success) {
    const faults = parsed.error.issues.map((issue) => `${issue.path.join('.') || '(top level)'}: ${issue.message}`);
    throw new TrialgateError('bad_input', `${file}: ${faults.join('; ')}`);
  }
  const agent = parsed.data;
  if (agent.name !== name)
    throw new TrialgateError('bad_input', `${file}: name: is ${agent.name}, but the file says ${name}`);
  for (const value of [...agent.command, ...Object.values(agent.env)]) {
    for (const [whole, placeholder] of value.matchAll(/\{([a-z_]+)\}/g)) {
      if (placeholder === undefined || PLACEHOLDERS.has(placeholder)) continue;
      throw new TrialgateError(
        'bad_input',
        `${file}: unknown placeholder ${whole}; there are ${[...PLACEHOLDERS].join(', ')}`,
      );
    }
  }
  return agent;
}

export async function listAgents(folder: string): Promise<string[]> {
  const files = await readdir(folder).catch(() => []);
  return files
    .filter((file) => file.endsWith('.yaml'))
    .map((file) => file.slice(0, -'.yaml'.length))
    .toSorted();
}

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
