import { execFile } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { TrialgateError } from '../../../core/errors.ts';
import type { SandboxSetting } from '../../../core/run-config/sandbox.ts';
import { SandboxError } from '../errors.ts';

const execute = promisify(execFile);

const PROGRAMS = ['srun', 'squeue', 'scancel', 'sinfo', 'scontrol'] as const;
type Program = (typeof PROGRAMS)[number];
/** A controller that does not answer in this time does not work. */
const ANSWER_MS = 30_000;
/** Longer than SLURM's KillWait, after which a node kills what a job still has, and only cleans up. */
const COMPLETING_MS = 45_000;
/** The step of a job whose `srun` lives is killed in this time. Without its `srun`, a job stays without a step. */
const STEP_MS = 2000;
/** Many sandboxes that wait for a long time must not keep the controller busy. */
const pauseAfter = (waitedMs: number): number => Math.min(Math.max(100, waitedMs / 5), 2000);

/** A job as `squeue` shows it. */
type Job = { id: string; state: string; name: string };

/** The programs of SLURM on this host, and what its configuration gives. */
export type Cluster = {
  srun: string;
  /** The environment of its programs. */
  env: NodeJS.ProcessEnv;
  /** For people: `slurm 22.05.8, 12 nodes`. */
  name: string;
  /** True when control groups hold the limit. */
  holds: { memory: boolean; cpus: boolean };
  /** Returns the state of the newest job of this name; null when SLURM knows none. */
  stateOf: (job: string) => Promise<string | null>;
  /** Ends the jobs whose names begin so, and returns when none is left. */
  end: (prefix: string) => Promise<void>;
};

/**
 * Finds SLURM's programs on the PATH, and asks its controller.
 * @throws TrialgateError `missing_prerequisite` when SLURM does not work here, `bad_input` when it has no such partition
 */
export async function openCluster(
  { partition }: Extract<SandboxSetting, { kind: 'slurm' }>,
  environment: NodeJS.ProcessEnv = process.env,
): Promise<Cluster> {
  const programs = findPrograms(environment);
  const env = outsideOfJobs(environment);
  const ask = async (program: Program, args: string[]): Promise<string> => {
    try {
      const { stdout } = await execute(programs[program], args, { env, timeout: ANSWER_MS, maxBuffer: 2 ** 26 });
      return stdout;
    } catch (error) {
      throw new SandboxError(`SLURM's \`${program}\` failed: ${reasonOf(error)}`, { cause: error });
    }
  };
  const [config, nodes] = await Promise.all([
    ask('scontrol', ['show', 'config']),
    ask('sinfo', ['--noheader', '--format=%D', ...(partition === undefined ? [] : [`--partition=${partition}`])]),
  ]);
  const count = nodes.split('\n').reduce((sum, line) => sum + (Number.parseInt(line, 10) || 0), 0);
  if (count === 0)
    throw new TrialgateError(
      'bad_input',
      partition === undefined
        ? 'sandbox: slurm: the cluster has no nodes: `sinfo` lists them'
        : `sandbox.partition: SLURM has no partition ${JSON.stringify(partition)} with nodes: \`sinfo\` lists them`,
    );
  const hasTaskGroups = (settingIn(config, 'TaskPlugin') ?? '').includes('task/cgroup');
  const isHeld = (name: string): boolean => hasTaskGroups && settingIn(config, name) === 'yes';

  const jobs = async (...more: string[]): Promise<Job[]> => {
    const mine = process.getuid?.();
    const listed = await ask('squeue', ['--noheader', `--user=${mine}`, '--format=%i|%T|%j', ...more]);
    return listed.split('\n').flatMap((line) => {
      const [id = '', state = '', ...name] = line.trim().split('|');
      return id === '' ? [] : [{ id, state, name: name.join('|') }];
    });
  };
  return {
    srun: programs.srun,
    env,
    name: `slurm ${settingIn(config, 'SLURM_VERSION') ?? ''}, ${count} ${count === 1 ? 'node' : 'nodes'}`,
    holds: { memory: isHeld('ConstrainRAMSpace'), cpus: isHeld('ConstrainCores') },
    stateOf: async (job) => {
      for (const start = performance.now(); ;) {
        const state = (await jobs('--states=all', `--name=${job}`)).at(-1)?.state ?? null;
        const waited = performance.now() - start;
        if (state !== 'COMPLETING' || waited > COMPLETING_MS) return state;
        await sleep(pauseAfter(waited));
      }
    },
    end: async (prefix) => {
      for (const start = performance.now(); ;) {
        const left = (await jobs()).filter(({ name }) => name.startsWith(prefix));
        const living = left.filter(({ state }) => state !== 'COMPLETING');
        const waited = performance.now() - start;
        if (left.length === 0 || (living.length === 0 && waited > COMPLETING_MS)) return;
        if (waited > COMPLETING_MS)
          throw new SandboxError(
            `SLURM cannot end the job ${living.map(({ id }) => id).join(', ')}: call \`scancel\`, or ask its operator`,
          );
        for (const { id, state } of living) {
          // A job that is told to end while its step starts keeps the step for SLURM's KillWait. So first the step is killed, when it is there.
          const hasStep = state === 'RUNNING' && waited < STEP_MS;
          await ask('scancel', hasStep ? ['--signal=KILL', `${id}.0`] : [id]).catch(() => '');
        }
        await sleep(pauseAfter(waited));
      }
    },
  };
}

function findPrograms(env: NodeJS.ProcessEnv): Record<Program, string> {
  const folders = (env.PATH ?? '').split(delimiter).filter(Boolean);
  const find = (program: Program): string => {
    const found = folders.map((folder) => join(folder, program)).find(isExecutable);
    if (found !== undefined) return found;
    throw new TrialgateError(
      'missing_prerequisite',
      `sandbox: slurm: \`${program}\` is not on the PATH: run the worker on a node with SLURM's programs (Debian: \`apt-get install slurm-client\`), or choose another kind of sandbox`,
    );
  };
  return {
    srun: find('srun'),
    squeue: find('squeue'),
    scancel: find('scancel'),
    sinfo: find('sinfo'),
    scontrol: find('scontrol'),
  };
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** A worker may be a job itself. In its environment, `srun` would start steps of that job and not jobs of their own. */
function outsideOfJobs(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const kept = Object.entries(env).filter(
    ([name]) => name === 'SLURM_CONF' || !/^(SLURM|SRUN|SBATCH|SQUEUE|SCANCEL|SINFO)_/.test(name),
  );
  return Object.fromEntries(kept);
}

/** Returns a value of `scontrol show config`. */
const settingIn = (config: string, name: string): string | null =>
  new RegExp(`^${name}\\s*=\\s*(.*?)\\s*$`, 'm').exec(config)?.[1] ?? null;

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const said = 'stderr' in error ? String(error.stderr).trim().slice(-500) : '';
  return said || error.message;
}
