/** The command line and environment of a process. */
export type Launch = {
  file: string;
  args: string[];
  env: NodeJS.ProcessEnv;
  cwd?: string;
  /** Another user, for a program that refuses to run as root. */
  user?: { uid: number; gid: number };
};

/** A part of the stack that the supervisor starts and watches. */
export type Component = {
  name: string;
  /** Its address, or what it serves, for people. */
  address: string;
  /** Names of the components that must be ready before it starts. */
  needs: string[];
  /** Prepares each start. @throws TrialgateError when only a person can help. */
  prepare?(signal: AbortSignal): Promise<void>;
  launch(): Launch;
  /** True when it serves. Called until then; a rejection counts as false. */
  isReady(pid: number, signal: AbortSignal): Promise<boolean>;
  /** Runs once after it became ready, before the components that need it start. */
  afterReady?(signal: AbortSignal): Promise<void>;
  /** Returns the sentence in the log of a start that failed which says that no start can succeed, if there is one. */
  faultIn?(log: readonly string[]): string | null;
  /** False when it lives but will never serve again. Called every few seconds. */
  isHealthy?(signal: AbortSignal): Promise<boolean>;
  /** Removes what the component leaves behind. Called after each end of the component. */
  afterEnd?(): void;
  readyWithinMs: number;
  stopSignal: NodeJS.Signals;
  stopWithinMs: number;
};

/** Returns the environment of a component: the user's own without our settings, plus `own`. */
export function environment(own: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const inherited = Object.entries(process.env).filter(
    ([name]) => !name.startsWith('TRIALGATE_') && name !== 'NODE_CHANNEL_FD',
  );
  return { ...Object.fromEntries(inherited), ...own };
}
