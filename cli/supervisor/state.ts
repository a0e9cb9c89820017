import { mkdirSync, readFileSync } from 'node:fs';
import { z } from 'zod';
import { writeAtomically } from '../files.ts';
import { homeFolders } from '../folders.ts';
import { isAlive } from './processes.ts';

const processId = z.object({ pid: z.number(), ticks: z.number() });

const componentState = z.object({
  name: z.string(),
  /** `failing`: it keeps ending or cannot start. It is still restarted, at growing intervals. */
  status: z.enum(['waiting', 'starting', 'ready', 'restarting', 'failing', 'stopped']),
  process: processId.nullable(),
  address: z.string(),
  /** The time when the status began, in ISO 8601. */
  since: z.string(),
  restarts: z.number(),
  /** The reason why it is not ready, for a person. */
  detail: z.string().nullable(),
  log: z.string().nullable(),
  stopSignal: z.string(),
});

/** Where the GPU worker's ranks compute. */
const ranksState = z.object({
  device: z.enum(['cpu', 'cuda']),
  dtype: z.enum(['bfloat16', 'float32']),
  count: z.number(),
  offload: z.boolean(),
  /** Absent from releases that did not record them. */
  recompute: z.boolean().default(false),
  /** Null for the trainer's default. */
  packTokens: z.number().nullable().default(null),
  /** The GPUs that the ranks see; null for all. */
  gpus: z.array(z.string()).nullable().default(null),
});

const stackState = z.object({
  supervisor: processId,
  status: z.enum(['starting', 'ready', 'stopping', 'stopped', 'failed']),
  /** The reason why the stack failed to start. */
  failure: z.object({ code: z.string(), message: z.string() }).nullable(),
  ports: z.record(z.string(), z.number()),
  engines: z.array(z.string()),
  /** The settings with which it runs (`running-settings.ts`); null before it knows them, and from releases that did not record them. */
  settings: z.record(z.string(), z.unknown()).nullable().default(null),
  /** The settings of the last start that became ready; absent before there was one. */
  ready_settings: z.record(z.string(), z.unknown()).optional(),
  /** True when the supervisor cancels its run at its end, as a quickstart does. */
  cancels_its_run: z.boolean().optional(),
  /** Null when the ranks run on other machines, and from releases that did not record them. */
  ranks: ranksState.nullable().default(null),
  notes: z.array(z.string()),
  components: z.array(componentState),
});

export type ComponentState = z.output<typeof componentState>;
export type RanksState = z.output<typeof ranksState>;
export type StackState = z.output<typeof stackState>;

/** Returns the content of `state.json`, or null if it does not exist or cannot be read. */
export function readState(home: string): StackState | null {
  try {
    const parsed = stackState.safeParse(JSON.parse(readFileSync(homeFolders(home).state, 'utf8')));
    return parsed.success ? parsed.data : null;
  } catch {
    return null;
  }
}

export function writeState(home: string, state: StackState): void {
  mkdirSync(home, { recursive: true });
  // Arguments of the engine may be secret, such as --hf-token.
  writeAtomically(homeFolders(home).state, `${JSON.stringify(state, null, 2)}\n`, 0o600);
}

/** True when the deployment's own engine is ready and runs the model of this folder or name. */
export const hasModel = ({ settings, components }: StackState, model: string): boolean =>
  settings?.['model'] === model && components.some(({ name, status }) => name === 'vllm' && status === 'ready');

/** Returns the state of a stack whose supervisor lives, otherwise null. */
export function livingState(home: string): StackState | null {
  const state = readState(home);
  return state && isAlive(state.supervisor) ? state : null;
}
