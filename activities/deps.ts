import type { Client } from '@temporalio/client';
import type { Database } from '../store/database.ts';
import type { Graders } from './reward/graders.ts';
import type { HostSandboxes } from './sandbox/host-sandboxes.ts';

/** The values that activities get from the process that runs them. */
export type Deps = {
  db: Database;
  temporal: Client;
  /** The URLs at which agents reach the gateways. */
  gatewayUrls: readonly string[];
  /** The deployment's folder, which has sandboxes, batches and checkpoints. */
  home: string;
  /** Derives the agents' keys. */
  secret: string;
  /** This worker's own task queue: a trial's agent and verifier run where its sandbox is. */
  hostQueue: string;
  sandboxes: HostSandboxes;
  /** The reward functions that this worker keeps warm. */
  graders: Graders;
};
