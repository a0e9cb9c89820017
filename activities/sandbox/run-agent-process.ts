import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import type { Task } from '../../core/task.ts';
import { mountsOf, pathWith, type Environment } from '../environments/environment.ts';
import { copyFiles } from './copy-files.ts';
import { handOver, type Sandbox } from './create-sandbox.ts';
import { errorLine } from './error-line.ts';
import { hostWork } from './errors.ts';
import { isDiskFullForOthers } from './host-disk.ts';
import type { Isolation } from './isolation.ts';
import type { NETWORKS } from '../../core/networks.ts';
import type { Mount } from './bubblewrap.ts';
import { PLACEHOLDER, type Agent } from './load-agent.ts';
import { gatewayAddress, reachedNetwork } from './network.ts';
import { baseEnvironment, ownMounts, pathsOf } from './sandbox-paths.ts';
import { passable, sandboxUser } from './sandbox-user.ts';
import { launch } from './launcher.ts';
import type { EndReason, ProcessResult } from './run-process.ts';

export type AgentRun = {
  agent: Agent;
  task: Task;
  sandbox: Sandbox;
  isolation: Isolation;
  /** The agent's own packages, if it has any. */
  environment?: Environment | null;
  trialId: string;
  /** The gateway's URL, as the host reaches it. */
  gateway: string;
  /** `gateway`: the agent reaches only the gateway. `host`: it reaches all that the host reaches. */
  network: (typeof NETWORKS)[number];
  apiKey: string;
  model: string;
  signal: AbortSignal;
};

export type AgentResult = {
  /** The way in which the process ended: by itself (`done`), or by a crash or a limit (`agent_error`). `judgeAgentEnd` decides who is at fault. */
  ending: 'done' | 'agent_error' | 'cancelled';
  /** An explanation for people; null when the agent is done. */
  reason: string | null;
  /** True when the host's disk is full through no fault of this sandbox. */
  isDiskFull: boolean;
  process: ProcessResult;
};

/** Runs the agent in its sandbox until it ends. Afterwards none of its processes runs. */
export async function runAgentProcess(run: AgentRun): Promise<AgentResult> {
  const { agent, task, sandbox, isolation, environment = null } = run;
  const ownNetwork = reachedNetwork(isolation, run.network) === 'gateway';
  const gateway = ownNetwork ? gatewayAddress(run.gateway).insideUrl : run.gateway;
  const trialUrl = `${gateway}/${encodeURIComponent(run.trialId)}`;
  const baseUrl = `${trialUrl}/v1`;
  const paths = pathsOf(sandbox, isolation);
  const readable = await readableFiles(run);
  const values: Record<string, string> = {
    python: environment?.python ?? isolation.python.executable,
    ...(environment?.nodeModules ? { node_modules: environment.nodeModules } : {}),
    work: paths.work,
    model: run.model,
    base_url: baseUrl,
    api_key: run.apiKey,
    ...Object.fromEntries(readable.map(({ placeholder, inside }) => [placeholder, inside])),
  };
  const fill = (text: string): string => text.replace(PLACEHOLDER, (whole, name) => values[name] ?? whole);
  const { limits } = agent;
  const base = baseEnvironment(isolation.python, paths);
  const result = await launch({
    argv: [...agent.command.map(fill), ...(agent.instruction === 'argument' ? [await instructionOf(run)] : [])],
    cwd: startFolder(run, paths.work),
    env: {
      ...base,
      PATH: pathWith(environment, base.PATH),
      OPENAI_BASE_URL: baseUrl,
      OPENAI_API_KEY: run.apiKey,
      // Anthropic's clients add `/v1/messages` themselves. Some of them read the key only as a token, others only as a key.
      ANTHROPIC_BASE_URL: trialUrl,
      ANTHROPIC_AUTH_TOKEN: run.apiKey,
      ANTHROPIC_API_KEY: run.apiKey,
      ...task.environment.env,
      ...Object.fromEntries(Object.entries(agent.env).map(([name, value]) => [name, fill(value)])),
    },
    limits: {
      seconds: Math.min(task.agent.timeoutSec, limits.seconds ?? Infinity),
      memoryMb: Math.min(task.environment.memoryMb, limits.memory_mb ?? Infinity),
      outputBytes: limits.output_bytes,
      processes: limits.processes,
      cpus: task.environment.cpus,
      storageMb: task.environment.storageMb,
    },
    isolation,
    uid: sandboxUser(isolation, sandbox),
    mounts: [...ownMounts(sandbox, paths), ...readable, ...mountsOf(environment)],
    network: ownNetwork ? { kind: 'gateway', url: run.gateway, folder: sandbox.root } : { kind: 'host' },
    marker: sandbox.marker,
    root: sandbox.root,
    ...(agent.instruction === 'stdin' ? { stdin: join(sandbox.work, INSTRUCTION) } : {}),
    signal: run.signal,
  });
  const isDiskFull = result.reason !== 'cancelled' && (await isDiskFullForOthers(sandbox, task.environment.storageMb));
  return { ...endingOf(result, agent.success_exit_codes), isDiskFull, process: result };
}

const INSTRUCTION = 'instruction.md';
/** Linux refuses a longer argument. */
const MOST_ARGUMENT_BYTES = 128 * 1024 - 1;

async function instructionOf({ agent, task, sandbox }: AgentRun): Promise<string> {
  const text = await readFile(join(sandbox.work, INSTRUCTION), 'utf8');
  if (Buffer.byteLength(text) <= MOST_ARGUMENT_BYTES) return text;
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
  const { agent, isolation } = run;
  const named = [
    ...(agent.folder === null ? [] : [{ placeholder: 'agents', host: agent.folder, inside: '/agents' }]),
    ...Object.entries(agent.mounts).map(([name, host]) => ({
      placeholder: `mounts.${name}`,
      host,
      inside: `/mounts/${name}`,
    })),
  ];
  if (isolation.kind === 'bubblewrap') return named.map((each) => ({ ...each, writable: false }));
  return Promise.all(
    named.map(async ({ placeholder, host }) => {
      const path = await reachable(run, host, placeholder);
      return { placeholder, host: path, inside: path, writable: false };
    }),
  );
}

/** Returns the path, or that of a copy when the sandbox's user cannot reach it. */
async function reachable({ sandbox, isolation }: AgentRun, path: string, name: string): Promise<string> {
  if (sandboxUser(isolation, sandbox) === null || passable(path)) return path;
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
  if (reason !== 'exited') return { ending: 'agent_error', reason: `the agent ${LIMITS[reason]}` };
  if (exitCode !== null && success.includes(exitCode)) return { ending: 'done', reason: null };
  return {
    ending: 'agent_error',
    reason: `the agent ended with ${signal ?? `exit code ${exitCode}`}: ${errorLine(stderr)}`,
  };
}
