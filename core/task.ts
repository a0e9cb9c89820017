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
  environment: { cpus: number; memoryMb: number; storageMb: number; env: Record<string, string> };
};

export type FolderTask = AnyTask & {
  kind: 'folder';
  /** Absolute. */
  folder: string;
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
