import type { NETWORKS } from '../../core/networks.ts';
import type { SandboxKind } from '../../core/run-config/sandbox.ts';
import type { ImageSource } from '../../core/task.ts';
import type { OnOutput } from './bounded-output.ts';
import type { Mount } from './bubblewrap.ts';
import type { Sandbox } from './empty-sandbox.ts';
import type { Isolation } from './isolation.ts';
import type { Limits } from './limits.ts';
import type { Network } from './network.ts';
import type { ProcessResult } from './run-process.ts';
import type { SandboxPaths } from './sandbox-paths.ts';
import type { View } from './view.ts';
import type { ForkServerSpec } from './warm/fork-server.ts';

/** The abilities of a kind of sandbox on this machine. */
export type Capabilities = {
  /** The networks to which it can restrict a process. */
  networks: readonly ('none' | (typeof NETWORKS)[number])[];
  /** True when a sandbox sees files of the host at paths that are the same in every sandbox. Otherwise it sees them under the host's paths. */
  mounts: boolean;
  /** True when a task's own image can be used. */
  images: boolean;
  /** True when one warm process can serve many trials, each in a fork of its own. */
  forks: boolean;
  /** The limits that the kernel holds. The others are counted, and a sandbox that exceeds one is ended. */
  kernelLimits: { memory: boolean; cpus: boolean; processes: boolean; storage: boolean };
  /** True when the state of a sandbox can be stored and started again. */
  snapshot: boolean;
  gpu: boolean;
};

/** The image of a sandbox, ready to be started. It is plain data. */
export type Image = {
  /** The engine's id of it, which names its content. */
  id: string;
  /** The folder in which its programs start. It is the agent's work folder. */
  workdir: string;
  /** The folder of the host with a copy of the files in `workdir`; null when there are none. */
  files: string | null;
  /** The variables that the image sets. */
  env: Record<string, string>;
};

export type PrepareOptions = {
  /** The deployment's folder. */
  home: string;
  signal: AbortSignal;
  /** Is told what takes long, for people. */
  report?: (line: string) => void;
};

/** A process of a sandbox. */
export type Command = {
  argv: string[];
  /** The working directory, as the process sees it. */
  cwd: string;
  /** The whole environment of the process. */
  env: Record<string, string>;
  limits: Limits;
  /** Files of the host that it sees besides the folders of its sandbox. */
  mounts: Mount[];
  network: Network;
  /** A file of the host that is its standard input. Absent: it has none. */
  stdin?: string;
  /** A kind that can do so runs the command as a fork of a warm process. */
  forkServer?: ForkServerSpec;
  onOutput?: OnOutput;
  signal: AbortSignal;
};

/** A sandbox that some worker of this host made. */
export type FoundSandbox = { home: string; name: string; isOwnerAlive: boolean };

/**
 * One kind of sandbox. `trialgate sandbox test KIND` tries the sentences of `conformance/checks.ts` on it. Images, warm processes and sandboxes of
 * lost workers are not among them: `container.real.test.ts`, `slurm.real.test.ts` and `fork-server.test.ts` try those.
 * Each sandbox has folders on its worker's host (`Sandbox`), which its processes see under the paths of `pathsOf`.
 * Failures of the host or of the kind's own programs are SandboxErrors; they are never blamed on what runs inside.
 */
export interface SandboxBackend {
  readonly kind: SandboxKind;
  readonly capabilities: Capabilities;
  /** A sentence for people about what keeps a sandbox from its host. */
  readonly statement: string;
  /** The isolation of programs that run on this host itself, beside the sandboxes of this kind: reward functions, installers. */
  readonly host: Isolation;

  /** The paths of a sandbox's folders, as its processes see them. */
  pathsOf(sandbox: Sandbox): SandboxPaths;
  /** The Python of a sandbox, as its processes see it. */
  pythonOf(sandbox: Sandbox): string;
  /** Returns the image, which is built or fetched if this host does not have it. It is kept by its content. */
  prepare(source: ImageSource, options: PrepareOptions): Promise<Image>;
  /** Makes an empty sandbox. It first removes everything of an earlier one of this name. */
  start(request: { home: string; name: string; image: Image | null }): Promise<Sandbox>;
  /**
   * Starts what a process with this network needs beside its own program, so that the first one starts sooner. `destroy` ends it. Absent for a
   * kind in which nothing takes long enough.
   */
  startAhead?(sandbox: Sandbox, network: Network, signal: AbortSignal): Promise<void>;
  /** Gives the sandbox's processes the files that the worker wrote into its folders on the host. */
  copyIn(sandbox: Sandbox, signal?: AbortSignal): Promise<void>;
  /** Returns what the command's process would see of this host. It starts nothing. */
  explain(sandbox: Sandbox, command: Command): Promise<View>;
  /** Runs one process to its end within its limits. When it returns, the process and all that it started are dead. */
  run(sandbox: Sandbox, command: Command): Promise<ProcessResult>;
  /** Brings the files that the sandbox's processes wrote into its folders on the host. */
  copyOut(sandbox: Sandbox, signal?: AbortSignal): Promise<void>;
  /** Ends all processes of a sandbox and removes it, whoever made it. Does nothing when there is none. It never fails, but logs. */
  destroy(home: string, name: string): Promise<void>;
  /** Returns the sandboxes of this kind that a deployment has on this host. */
  find(home: string): Promise<FoundSandbox[]>;
}
