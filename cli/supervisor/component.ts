/** How a process is started. */
export type Launch = {
  file: string;
  args: string[];
  env: NodeJS.ProcessEnv;
  cwd?: string;
  /** Another user, for what refuses to run as root. */
  user?: { uid: number; gid: number };
};

/** One part of the stack that the supervisor starts and watches. */
export type Component = {
  name: string;
  /** Shown to people: where it can be reached, or what it serves. */
  address: string;
  /** Names of the components that must be ready before it starts. */
  needs: string[];
  /** What must be in place before each start. @throws TrialgateError when only a person can help. */
  prepare?(signal: AbortSignal): Promise<void>;
  launch(): Launch;
  /** Whether it serves. Called until it does; a rejection counts as no. */
  isReady(pid: number, signal: AbortSignal): Promise<boolean>;
  /** Once after it became ready, before what needs it starts. */
  afterReady?(signal: AbortSignal): Promise<void>;
  /** False when it lives but will never serve again; asked every few seconds. */
  isHealthy?(signal: AbortSignal): Promise<boolean>;
  readyWithinMs: number;
  stopSignal: NodeJS.Signals;
  stopWithinMs: number;
};

/** The environment of a component: the user's own, less our settings, plus what is given. */
export function environment(own: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith('TRIALGATE_') && name !== 'NODE_CHANNEL_FD');
  return { ...Object.fromEntries(inherited), ...own };
}
