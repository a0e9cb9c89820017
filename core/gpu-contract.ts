import type { Canary } from './canary.ts';
import type { RunConfig } from './run-config/run-config.ts';
import type { TrainerSettings } from './run-config/trainer-settings.ts';

/** The Python activities of `gpu-workers/`, as workflows call them. One JSON object in, one out. */
export type GpuActivities = {
  loadBase(input: LoadBaseInput): Promise<Checkpoint>;
  trainStep(input: TrainStepInput): Promise<TrainStepResult>;
  publishPolicy(input: PublishInput): Promise<{ replicas: ReplicaReport[] }>;
};

/** The settings of the run that decide what version 0 is. */
export type LoadBaseInput = { run_id: string; model: string; home: string } & Pick<
  TrainerSettings,
  'head_dtype' | 'lora_rank' | 'lora_alpha' | 'target_modules' | 'enable_router_replay' | 'seed' | 'trainer_server'
>;

export type Checkpoint = {
  checkpoint: string;
  checkpoint_sha256: string;
  canary: Canary;
  metrics: Record<string, number>;
};

export type TrainStepInput = {
  run_id: string;
  version: number;
  parent_checkpoint: string;
  batch_path: string;
  batch_sha256: string;
  home: string;
  /** The checkpoint of the run's best version so far, which the step does not prune; absent: no version has a reward. */
  best_checkpoint?: string | undefined;
  trainer: TrainerSettings;
};

export type TrainStepResult = Checkpoint & {
  step_key: string;
  reused: boolean;
  /** The reason why the step made no update. It is set when a value of the step was not finite. */
  skipped?: string | null;
};

export type PublishInput = {
  weight_version: string;
  checkpoint: string;
  checkpoint_sha256: string;
  replicas: string[];
  min_replicas: number;
  canary: Canary;
  /** The dtype of the output head in the run's trainer; absent: `model`. A publication refuses an engine whose head uses another. */
  head_dtype?: TrainerSettings['head_dtype'];
  /** The way in which weights travel to the engines. It is `auto` when absent. */
  weight_broadcast?: RunConfig['weight_broadcast'];
  /** The largest canary difference at version 0, in nats; null while version 0 itself is published. */
  canary_tolerance: number | null;
  /** The checksum of the tensors on replicas that confirmed this version earlier; null when there are none. */
  checksum?: string | null;
  /** The weight versions whose LoRA adapters stay loaded, because calls may still use them. */
  keep: string[];
  previous: {
    weight_version: string;
    checkpoint: string;
    checkpoint_sha256: string;
    checksums: Record<string, string>;
  } | null;
};

export type ReplicaReport = {
  url: string;
  ok: boolean;
  weight_version: string | null;
  checksum: string | null;
  canary_difference: number | null;
  seconds: number;
  error: string | null;
};
