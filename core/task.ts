/** One task: a folder in Harbor's format. */
export type Task = {
  name: string;
  /** Absolute. */
  folder: string;
  instruction: string;
  agent: { timeoutSec: number };
  verifier: { timeoutSec: number; env: Record<string, string> };
  environment: { cpus: number; memoryMb: number; storageMb: number; env: Record<string, string> };
};
