import { accessSync, constants } from 'node:fs';
import { join } from 'node:path';
import Docker from 'dockerode';
import { z } from 'zod';
import { TrialgateError } from '../../../core/errors.ts';
import { inTime } from '../../../core/in-time.ts';
import type { Capabilities } from '../backend.ts';
import { SandboxError } from '../errors.ts';

/** An engine of this host that speaks Docker's API, and what its answers depend on. */
export type Engine = {
  docker: Docker;
  /** For people: `podman 4.3.1`. */
  name: string;
  isPodman: boolean;
  /** True when it runs without root. Its root is then the user of this worker. */
  isRootless: boolean;
  /** The names of the runtimes that it knows. */
  runtimes: string[];
  /** The limits that the kernel holds for its containers. */
  kernelLimits: Capabilities['kernelLimits'];
};

/** An engine reports false for each limit that it does not support. */
const reported = z.object({
  MemoryLimit: z.boolean().default(true),
  CpuCfsQuota: z.boolean().default(true),
  PidsLimit: z.boolean().default(true),
});

/** An engine that answers no request in this time does not work. Pulls, builds and runs have times of their own. */
const ANSWER_MS = 30_000;

const ADVICE =
  'install Docker or podman and start its service (`systemctl start docker`, `systemctl --user start podman.socket`), or set DOCKER_HOST to its socket';

/** An engine is asked for its version again after this time, and after a connection to an engine has failed. */
const KNOWN_MS = 300_000;
const known = new Map<string, { engine: Engine; until: number }>();

/**
 * Connects to the engine that DOCKER_HOST names, or whose socket is in the usual place. Each trial does so, and the engine is asked once.
 * @throws TrialgateError `missing_prerequisite`
 */
export async function connectEngine(signal?: AbortSignal, env: NodeJS.ProcessEnv = process.env): Promise<Engine> {
  const socketPath = env.DOCKER_HOST === undefined ? usualSockets(env).find(isUsable) : undefined;
  const place = env.DOCKER_HOST ?? socketPath;
  if (place === undefined)
    throw new TrialgateError(
      'missing_prerequisite',
      `sandbox: container: no container engine runs here that this user may use: ${ADVICE}`,
    );
  const before = known.get(place);
  if (before && before.until > performance.now()) return before.engine;
  try {
    const engine = await askedEngine(new Docker(socketPath === undefined ? {} : { socketPath }), signal);
    known.set(place, { engine, until: performance.now() + KNOWN_MS });
    return engine;
  } catch (error) {
    signal?.throwIfAborted();
    throw new TrialgateError(
      'missing_prerequisite',
      `sandbox: container: the container engine at ${place} does not answer (${messageOf(error)}): ${ADVICE}`,
      { cause: error },
    );
  }
}

async function askedEngine(docker: Docker, signal: AbortSignal | undefined): Promise<Engine> {
  const [version, info] = await Promise.all([
    answered(docker.version(), 'version', signal),
    answered(docker.info(), 'info', signal),
  ]);
  const limits = reported.parse(info);
  const isPodman = (version.Components ?? []).some(({ Name }) => /podman/i.test(Name));
  return {
    docker,
    name: `${isPodman ? 'podman' : 'Docker'} ${version.Version}`,
    isPodman,
    isRootless: (info.SecurityOptions ?? []).some((option: string) => option.includes('rootless')),
    runtimes: Object.keys(info.Runtimes ?? {}),
    kernelLimits: { memory: limits.MemoryLimit, cpus: limits.CpuCfsQuota, processes: limits.PidsLimit, storage: false },
  };
}

/** A socket that exists may be one of other users. */
function isUsable(path: string): boolean {
  try {
    accessSync(path, constants.R_OK | constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

const usualSockets = (env: NodeJS.ProcessEnv): string[] => [
  '/var/run/docker.sock',
  '/run/podman/podman.sock',
  ...(env.XDG_RUNTIME_DIR === undefined
    ? []
    : [join(env.XDG_RUNTIME_DIR, 'docker.sock'), join(env.XDG_RUNTIME_DIR, 'podman/podman.sock')]),
];

/**
 * Waits for the engine's answer. The signal ends the wait, and not the engine's work.
 * @throws SandboxError when it refuses, or does not answer in time
 */
export async function answered<T>(request: Promise<T>, what: string, signal?: AbortSignal): Promise<T> {
  try {
    return await inTime(request, ANSWER_MS, signal);
  } catch (error) {
    // Without a status it is no refusal: the engine may have ended, and another one may take its place.
    if (statusOf(error) === null && !signal?.aborted) known.clear();
    throw new SandboxError(`the container engine: ${what}: ${messageOf(error)}`, { cause: error });
  }
}

/** Returns the HTTP status of the engine's refusal; null when the error is no answer of the engine. */
export const statusOf = (error: unknown): number | null => {
  const cause = error instanceof SandboxError ? error.cause : error;
  return cause instanceof Error && 'statusCode' in cause && typeof cause.statusCode === 'number'
    ? cause.statusCode
    : null;
};

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error)).trim();
