import { join } from 'node:path';
import type { Task } from '../../core/task.ts';
import type { Agent } from './agent-file.ts';
import { copyFiles } from './copy-files.ts';
import { handOver, type Sandbox } from './create-sandbox.ts';
import { hostWork } from './errors.ts';
import { isDiskFullForOthers } from './host-disk.ts';
import type { Isolation } from './isolation.ts';
import type { NETWORKS } from '../../core/networks.ts';
import { gatewayDoor } from './network.ts';
import { baseEnvironment, ownMounts, placeOf } from './place.ts';
import { passable, sandboxUser } from './sandbox-user.ts';
import { launch } from './launcher.ts';
import type { EndReason, ProcessResult } from './run-process.ts';

export type AgentRun = {
  agent: Agent;
  /** The folder of the agents' own files. The agent can only read it. */
  agentsFolder: string;
  task: Task;
  sandbox: Sandbox;
  isolation: Isolation;
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
export async function runAgent(run: AgentRun): Promise<AgentResult> {
  const { agent, task, sandbox, isolation } = run;
  const wrapped = isolation.kind === 'bubblewrap';
  const ownNetwork = wrapped && run.network === 'gateway';
  const gateway = ownNetwork ? gatewayDoor(run.gateway).insideUrl : run.gateway;
  const trialUrl = `${gateway}/${encodeURIComponent(run.trialId)}`;
  const baseUrl = `${trialUrl}/v1`;
  const place = { ...placeOf(sandbox, isolation), agents: wrapped ? '/agents' : await reachable(run) };
  const values: Record<string, string> = {
    python: isolation.python.executable,
    agents: place.agents,
    work: place.work,
    model: run.model,
    base_url: baseUrl,
    api_key: run.apiKey,
  };
  const fill = (text: string): string => text.replace(/\{([a-z_]+)\}/g, (whole, name) => values[name] ?? whole);
  const { limits } = agent;
  const result = await launch({
    argv: agent.command.map(fill),
    cwd: place.work,
    env: {
      ...baseEnvironment(isolation.python, place),
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
    mounts: [...ownMounts(sandbox, place), { host: run.agentsFolder, inside: place.agents, writable: false }],
    network: ownNetwork ? { kind: 'gateway', url: run.gateway, folder: sandbox.root } : { kind: 'host' },
    marker: sandbox.marker,
    root: sandbox.root,
    signal: run.signal,
  });
  const isDiskFull = result.reason !== 'cancelled' && (await isDiskFullForOthers(sandbox, task.environment.storageMb));
  return { ...endingOf(result), isDiskFull, process: result };
}

/** Returns the agents' folder, or a copy of it when the sandbox's user cannot reach the folder. */
async function reachable({ agentsFolder, sandbox, isolation }: AgentRun): Promise<string> {
  if (sandboxUser(isolation, sandbox) === null || passable(agentsFolder)) return agentsFolder;
  const copy = join(sandbox.root, 'agents');
  await hostWork(`sandbox ${sandbox.name}`, () =>
    copyFiles(agentsFolder, copy, { bytes: 64 * 2 ** 20, entries: 10_000 }),
  );
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

function endingOf({ reason, exitCode, signal, stderr }: ProcessResult): Pick<AgentResult, 'ending' | 'reason'> {
  if (reason === 'cancelled') return { ending: 'cancelled', reason: 'cancelled' };
  if (reason !== 'exited') return { ending: 'agent_error', reason: `the agent ${LIMITS[reason]}` };
  if (exitCode === 0) return { ending: 'done', reason: null };
  const last = stderr.trim().split('\n').at(-1)?.slice(0, 300) ?? '';
  return { ending: 'agent_error', reason: `the agent ended with ${signal ?? `exit code ${exitCode}`}: ${last}` };
}
