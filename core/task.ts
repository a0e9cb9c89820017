import type { JsonObject } from './json.ts';
import type { RewardFunction } from './run-config/reward.ts';

export type Message = { role: string; content: string };

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

export type FolderTask = AnyTask & {
  kind: 'folder';
  /** Absolute. */
  folder: string;
  /** The network that the task gives its agent; null if the task does not say. */
  network: 'public' | 'no-network' | null;
  /** `environment` is that of the sandbox in which the tests run. */
  verifier: AnyTask['verifier'] & { environment: TaskEnvironment };
};

export type RowTask = AnyTask & {
  kind: 'row';
  row: JsonObject;
  /** The prompt. `instruction` is its text. */
  messages: Message[];
  /** The columns of the row that the agent can read. */
  columns: string[];
  /** The functions that give its rewards, by the rewards' names. */
  rewards: Record<string, RewardFunction>;
};
