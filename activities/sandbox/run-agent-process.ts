import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import type { Task } from '../../core/task.ts';
import { mountsOf, pathWith, type Environment } from '../environments/environment.ts';
import { copyFiles } from './copy-files.ts';
import { handOver, type Sandbox } from './empty-sandbox.ts';
import { errorLine } from './error-line.ts';
import { hostWork } from './errors.ts';
import { isDiskFullForOthers } from './host-disk.ts';
import type { Command, SandboxBackend } from './backend.ts';
import type { AgentNetwork } from '../../core/networks.ts';
import type { Mount } from './bubblewrap.ts';
import { PLACEHOLDER, type Agent } from './load-agent.ts';
import { gatewayAddress, proxyVariables, reachedNetwork, type Network } from './network.ts';
import { baseEnvironment } from './sandbox-paths.ts';
import { passable, sandboxUser } from './sandbox-user.ts';
import type { EndReason, ProcessResult } from './run-process.ts';
import { writeInside } from './write-inside.ts';

export type AgentRun = {
  agent: Agent;
  task: Task;
  sandbox: Sandbox;
  backend: SandboxBackend;
  /** The agent's own packages, if it has any. */
  environment?: Environment | null;
  trialId: string;
  /** The gateway's URL, as the host reaches it. */
  gateway: string;
  /** `gateway`: the agent reaches only the gateway; with a list, the hosts in it too. `host`: it reaches all that the host reaches. */
  network: AgentNetwork;
  apiKey: string;
  model: string;
  /** Returns for how many seconds it has waited for its engine. They do not count to its time. */
  waited?: () => Promise<number>;
  signal: AbortSignal;
};

export type AgentResult = {
  /**
   * The way in which the process ended: by itself (`done`), at the end of its time (`timed_out`), or by a crash or another limit
   * (`agent_error`). `judgeAgentEnd` decides who is at fault.
   */
  ending: 'done' | 'timed_out' | 'agent_error' | 'cancelled';
  /** An explanation for people; null when the agent is done. */
  reason: string | null;
  /** True when the host's disk is full through no fault of this sandbox. */
  isDiskFull: boolean;
  process: ProcessResult;
};

/** Runs the agent in its sandbox until it ends. Afterwards none of its processes runs. */
export async function runAgentProcess(run: AgentRun): Promise<AgentResult> {
  const { agent, task, sandbox, backend } = run;
  const result = await backend.run(sandbox, await agentCommand(run));
  await backend.copyOut(sandbox, run.signal);
  const isDiskFull = result.reason !== 'cancelled' && (await isDiskFullForOthers(sandbox, task.environment.storageMb));
  return { ...endingOf(result, agent.success_exit_codes), isDiskFull, process: result };
}

/** Returns the agent's process, with all that it is given. */
export async function agentCommand(run: AgentRun): Promise<Command> {
  const { agent, task, sandbox, backend, environment = null } = run;
  const network = networkOf(run);
  const gateway = network.kind === 'gateway' ? gatewayAddress(run.gateway).insideUrl : run.gateway;
  const trialUrl = `${gateway}/${encodeURIComponent(run.trialId)}`;
  const baseUrl = `${trialUrl}/v1`;
  const paths = backend.pathsOf(sandbox);
  const readable = await readableFiles(run);
  const values: Record<string, string> = {
    python: environment?.python ?? backend.pythonOf(sandbox),
    ...(environment?.nodeModules ? { node_modules: environment.nodeModules } : {}),
    work: paths.work,
    model: run.model,
    base_url: baseUrl,
    api_key: run.apiKey,
    ...Object.fromEntries(readable.map(({ placeholder, inside }) => [placeholder, inside])),
  };
  const fill = (text: string): string => text.replace(PLACEHOLDER, (whole, name) => values[name] ?? whole);
  const { limits } = agent;
  const base = { ...baseEnvironment(backend.pythonOf(sandbox), paths), ...sandbox.image?.env };
  // These variables have the same value in every trial.
  const shared = Object.entries(agent.env).filter(([, value]) => !/\{(base_url|api_key)\}/.test(value));
  const ofAgent = { ...base, PATH: pathWith(environment, base.PATH), ...proxyVariables(network) };
  const argv = [...agent.command.map(fill), ...(agent.instruction === 'argument' ? [instructionArgument(run)] : [])];
  const mounts = [...readable, ...mountsOf(environment), ...sandbox.mounts];
  return {
    argv,
    cwd: startFolder(run, paths.work),
    ...(agent.isWarm && backend.capabilities.forks
      ? {
          forkServer: {
            home: sandbox.home,
            argv,
            env: { ...ofAgent, ...Object.fromEntries(shared.map(([name, value]) => [name, fill(value)])) },
            mounts,
          },
        }
      : {}),
    env: {
      ...ofAgent,
      OPENAI_BASE_URL: baseUrl,
      OPENAI_API_KEY: run.apiKey,
      // Anthropic's clients add `/v1/messages` themselves. Some of them read the key only as a token, others only as a key.
      ANTHROPIC_BASE_URL: trialUrl,
      ANTHROPIC_AUTH_TOKEN: run.apiKey,
      ANTHROPIC_API_KEY: run.apiKey,
      // Google's client adds `/v1beta/models/…`.
      GOOGLE_GEMINI_BASE_URL: trialUrl,
      GEMINI_API_KEY: run.apiKey,
      ...task.environment.env,
      ...Object.fromEntries(Object.entries(agent.env).map(([name, value]) => [name, fill(value)])),
    },
    limits: {
      seconds: Math.min(task.agent.timeoutSec, limits.seconds ?? Infinity),
      memoryMb: Math.min(task.environment.memoryMb, limits.memory_mb ?? Infinity),
      outputBytes: limits.output_bytes,
      cutsOutput: true,
      ...(run.waited ? { uncounted: run.waited } : {}),
      processes: limits.processes,
      cpus: task.environment.cpus,
      storageMb: task.environment.storageMb,
    },
    mounts,
    network,
    ...(agent.instruction === 'stdin' ? { stdin: await instructionFile(run) } : {}),
    signal: run.signal,
  };
}

function networkOf({ backend, network: wanted, gateway: url, sandbox: { root: folder } }: AgentRun): Network {
  const network = reachedNetwork(backend, wanted);
  if (network === 'host') return { kind: 'host' };
  return { kind: 'gateway', url, folder, ...(network === 'gateway' ? {} : { hosts: network }) };
}

/** Linux refuses a longer argument. */
const MOST_ARGUMENT_BYTES = 128 * 1024 - 1;

/** The file in the work folder may be a link by now, so no host process opens it. */
const instructionFile = ({ sandbox: { name, root }, task }: AgentRun): Promise<string> =>
  hostWork(`sandbox ${name}`, () => writeInside(root, 'instruction.md', task.instruction));

function instructionArgument({ agent, task }: AgentRun): string {
  if (Buffer.byteLength(task.instruction) <= MOST_ARGUMENT_BYTES) return task.instruction;
  throw new TrialgateError(
    'bad_input',
    `agent ${agent.name}: the instruction of task ${task.name} is too long for an argument: set \`instruction: stdin\` or \`file\``,
  );
}

/** Returns the folder in which the agent starts, as its process sees it. */
function startFolder({ agent, task, sandbox }: AgentRun, work: string): string {
  if (existsSync(join(sandbox.work, agent.workdir))) return join(work, agent.workdir);
  throw new TrialgateError(
    'bad_input',
    `agent ${agent.name}: workdir: there is no ${agent.workdir} in the environment of task ${task.name}`,
  );
}

/** Returns what the agent can read besides its sandbox's own folders, and the placeholder for each. */
async function readableFiles(run: AgentRun): Promise<(Mount & { placeholder: string })[]> {
  const { agent, backend } = run;
  const named = [
    ...(agent.folder === null ? [] : [{ placeholder: 'agents', host: agent.folder, inside: '/agents' }]),
    ...Object.entries(agent.mounts).map(([name, host]) => ({
      placeholder: `mounts.${name}`,
      host,
      inside: `/mounts/${name}`,
    })),
  ];
  if (backend.capabilities.mounts) return named.map((each) => ({ ...each, writable: false }));
  return Promise.all(
    named.map(async ({ placeholder, host }) => {
      const path = await reachable(run, host, placeholder);
      return { placeholder, host: path, inside: path, writable: false };
    }),
  );
}

/** Returns the path, or that of a copy when the sandbox's user cannot reach it. */
async function reachable({ sandbox, backend }: AgentRun, path: string, name: string): Promise<string> {
  if (sandboxUser(backend.host, sandbox) === null || passable(path)) return path;
  const copy = join(sandbox.root, name);
  await hostWork(`sandbox ${sandbox.name}`, () => copyFiles(path, copy, { bytes: 64 * 2 ** 20, entries: 10_000 }));
  await hostWork(`sandbox ${sandbox.name}`, () => handOver(copy, sandbox.uid));
  return copy;
}

const LIMITS: Record<Exclude<EndReason, 'exited' | 'cancelled'>, string> = {
  timed_out: 'used up its time',
  out_of_memory: 'used up its memory',
  output_limit: 'printed too much',
  process_limit: 'started too many processes',
  storage_limit: 'used up its disk space',
  descriptor_limit: 'opened too many files',
};

function endingOf(
  { reason, exitCode, signal, stderr }: ProcessResult,
  success: readonly number[],
): Pick<AgentResult, 'ending' | 'reason'> {
  if (reason === 'cancelled') return { ending: 'cancelled', reason: 'cancelled' };
  if (reason === 'timed_out') return { ending: 'timed_out', reason: `the agent ${LIMITS.timed_out}` };
  if (reason !== 'exited') return { ending: 'agent_error', reason: `the agent ${LIMITS[reason]}` };
  if (exitCode !== null && success.includes(exitCode)) return { ending: 'done', reason: null };
  const line = errorLine(stderr);
  return {
    ending: 'agent_error',
    reason: `the agent ended with ${signal ?? `exit code ${exitCode}`}${line === '' ? ', and printed no error' : `: ${line}`}`,
  };
}
