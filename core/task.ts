import type { JsonObject } from './json.ts';
import type { Message } from './prompt-messages.ts';
import type { RewardFunction } from './run-config/reward.ts';

/** One task: a folder in Harbor's format, or a row of data. */
export type Task = FolderTask | RowTask;

type AnyTask = {
  name: string;
  instruction: string;
  agent: { timeoutSec: number };
  verifier: { timeoutSec: number; env: Record<string, string> };
  environment: TaskEnvironment;
};

/** The limits of a sandbox, and the variables of its processes. */
export type TaskEnvironment = { cpus: number; memoryMb: number; storageMb: number; env: Record<string, string> };

/** What an image is made of: its name in a registry, or a folder with a Dockerfile and the most time that its build may take. */
export type ImageSource = { name: string } | { folder: string; buildSeconds?: number };

/** A repository at one commit, of which each sandbox has a working copy. */
export type TaskRepository = {
  /** A URL, or an absolute path. */
  url: string;
  commit: string;
  /** The folder of the copy in the agent's work folder; `.` is the work folder. */
  path: string;
  /** True when the commits before this one are part of the copy. */
  history: boolean;
};

export type FolderTask = AnyTask & {
  kind: 'folder';
  /** The task's own image; null when it has none, or is loaded for sandboxes without images. */
  image: ImageSource | null;
  /** Absolute. */
  folder: string;
  /** The network that the task gives its agent, a list of hosts among them; null if the task does not say. */
  network: 'public' | 'no-network' | string[] | null;
  repository: TaskRepository | null;
  /** `environment` and `image` are those of the sandbox in which the tests run, and `hosts` what they reach. Without an image they run in the agent's. */
  verifier: AnyTask['verifier'] & { environment: TaskEnvironment; image: ImageSource | null; hosts: string[] };
};

export type RowTask = AnyTask & {
  kind: 'row';
  row: JsonObject;
  /** A text, or messages. */
  prompt: string | Message[];
  /** The prompt as messages. `instruction` is its text. */
  messages: Message[];
  /** The columns of the row that the agent can read. */
  columns: string[];
  /** The functions that give its rewards, by the rewards' names. */
  rewards: Record<string, RewardFunction>;
};
