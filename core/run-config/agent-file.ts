import { z } from 'zod';
import { agentNetwork } from '../networks.ts';
import { npmDependencies, pythonDependencies } from './dependencies.ts';

/** The form of an agent's name, which is also its file's. */
export const AGENT_NAME = /^[a-z0-9][a-z0-9-]*$/;

/** The form of a mount's name. It is part of a placeholder and of a path. */
const MOUNT_NAME = /^[a-z0-9][a-z0-9_-]*$/;

/** The form of a Python function's name: `file.py:function`. */
const FUNCTION = /^.+\.py:[A-Za-z_]\w*$/;

/**
 * An agent as data, in a file of its own or within a run file. `command` and `env` may contain {python} {agents} {work} {model} {base_url}
 * {api_key} {node_modules} {mounts.NAME}.
 */
export const agentFile = z
  .strictObject({
    /** Absent: the file's name, or within a run file its position. */
    name: z.string().regex(AGENT_NAME, 'lower-case letters, digits and dashes').optional(),
    description: z.string().min(1).optional(),
    /** The program and its arguments. Either this or `function`. */
    command: z.array(z.string().min(1)).min(1).optional(),
    /** A Python function as `file.py:function`, which gets the task and the model (`agents/scripts/function_agent.py`). */
    function: z.string().regex(FUNCTION, 'a Python function: `file.py:function`').optional(),
    /** A function's module is imported once, and each trial is a fork of that process. `false` gives each trial a process that imports it again. */
    warm: z.boolean().optional(),
    /** The Python packages that it imports. `{python}` is then the environment's Python. */
    python: pythonDependencies.optional(),
    /** The npm packages that it uses. Their commands and Node are then on its PATH. */
    npm: npmDependencies.optional(),
    /** The folder in which it starts, within the work folder. */
    workdir: z
      .string()
      .regex(/^(?!\/)(?!(?:.*\/)?\.\.(?:\/|$))/, 'a folder within the work folder, such as `src`')
      .default('.'),
    /** The agent gets these besides PATH, HOME, TMPDIR, LANG, OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_AUTH_TOKEN, ANTHROPIC_API_KEY, GOOGLE_GEMINI_BASE_URL and GEMINI_API_KEY. */
    env: z.record(z.string(), z.string()).default({}),
    /** Every agent finds its task in the file `instruction.md`. `argument` and `stdin` also pass the text: as the last argument of the command, or as standard input. */
    instruction: z.enum(['file', 'argument', 'stdin']).default('file'),
    /** The exit codes that mean that the agent is done. */
    success_exit_codes: z.array(z.int().min(0).max(255)).min(1).default([0]),
    /** More files of the host that the agent can read, by name. Relative paths are relative to the file. */
    mounts: z
      .record(z.string().regex(MOUNT_NAME, 'lower-case letters, digits, dashes and underscores'), z.string().min(1))
      .default({}),
    /** `gateway` lets the agent reach only the gateway, a list of hosts these too, and `host` all that the host reaches. A run file can override this. */
    network: agentNetwork.default('gateway'),
    limits: z
      .strictObject({
        /** At most the task's own limit. */
        seconds: z.number().positive().optional(),
        memory_mb: z.number().positive().optional(),
        processes: z.int().min(1).default(64),
        /** The most bytes of stdout and stderr together. */
        output_bytes: z.int().min(1).default(1_048_576),
      })
      .prefault({}),
  })
  .refine(({ command, function: name }) => (command === undefined) !== (name === undefined), {
    message: 'an agent has either a `command` or a `function`',
    path: ['command'],
  })
  .refine(({ function: name, workdir }) => name === undefined || workdir === '.', {
    message: 'a function starts in the work folder, where its task is: change the folder in the function',
    path: ['workdir'],
  })
  .refine(({ function: name, instruction }) => name === undefined || instruction === 'file', {
    message: 'a function gets its task as an argument: leave out `instruction`',
    path: ['instruction'],
  })
  .refine(({ function: name, warm }) => name !== undefined || warm === undefined, {
    message: 'only a `function` can be warm',
    path: ['warm'],
  });

export type AgentFile = z.output<typeof agentFile>;

/** An entry of a run file's `agents`: the name of a bundled agent, the path of an agent's file, a Python function as `file.py:function`, or the agent itself. */
export const agentEntry = z.union([z.string().min(1), agentFile]);
export type AgentEntry = z.output<typeof agentEntry>;

const INLINE = 'inline:';

/** True when the entry is the path of an agent's file or a function, not a name. */
export const isAgentPath = (entry: string): boolean =>
  entry.includes('/') || /\.ya?ml$/.test(entry) || isAgentFunction(entry);

export const isAgentFunction = (entry: string): boolean => FUNCTION.test(entry);

/** Returns the text by which records and workflows call each agent of a run: its name, its file, or `inline:` and its name or position. */
export const agentLabels = (agents: readonly AgentEntry[]): string[] =>
  agents.map((entry, index) => (typeof entry === 'string' ? entry : `${INLINE}${entry.name ?? index + 1}`));

/** Returns the label of the agent whose turn it is. */
export function agentInTurn(agents: readonly AgentEntry[], position: number): string {
  const labels = agentLabels(agents);
  return labels[position % labels.length] ?? '';
}

/** Returns the entry of an agent by its label. Only an agent within the run file is not known by its label alone. */
export const agentOf = (agents: readonly AgentEntry[], label: string): AgentEntry =>
  (isInlineAgent(label) ? agents[agentLabels(agents).indexOf(label)] : undefined) ?? label;

export const isInlineAgent = (label: string): boolean => label.startsWith(INLINE);
