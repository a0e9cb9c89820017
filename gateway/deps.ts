import type { Database } from '../store/database.ts';
import type { Counters, Snapshot } from './counters.ts';
import type { EnginePool } from './engines/pool.ts';
import type { InFlight } from './in-flight.ts';
import type { OpenBodies } from './open-bodies.ts';
import type { Recorder } from './recorder/recorder.ts';
import type { Deliveries } from './retry/deliveries.ts';
import type { Refusals } from './refusals.ts';
import type { SameCalls } from './retry/same-calls.ts';
import type { GatewaySettings } from './settings.ts';
import type { Conversations } from './token-in/conversations.ts';
import type { Trials } from './trials.ts';

export type GatewayDeps = {
  db: Database;
  trials: Trials;
  recorder: Recorder;
  engines: EnginePool;
  conversations: Conversations;
  counters: Counters;
  /** Requests whose reply has not ended, by trial. */
  openCalls: InFlight;
  openBodies: OpenBodies;
  sameCalls: SameCalls;
  deliveries: Deliveries;
  refusals: Refusals;
  /** The secret from which the attempts' keys are derived. */
  secret: string;
  /** The key of the session routes. Null leaves them open, for a gateway that listens on loopback only. */
  adminKey: string | null;
  settings: GatewaySettings;
  /** Writes one line for each failure. */
  log: (line: string) => void;
  /** Returns the counts of this process's other thread. */
  otherThread?: () => Promise<Snapshot | null>;
  /** Returns a file of Swagger UI for the API's page, or null if there is none. */
  docsFile: (name: string) => Promise<Uint8Array<ArrayBuffer> | null>;
  /** Aborts when the process must stop what is still running. */
  stopping: AbortSignal;
};

/**
 * Functions that a runtime adds to each request. `cut` breaks the connection, for a runtime in which an unfinished body does not.
 * `handOver` gives the request, with its body if that was read, to the heavy thread and returns that thread's result. `delivered` resolves
 * when the reply has ended: true if the agent received all of it.
 */
export type GatewayEnv = {
  Bindings: {
    cut?: () => Promise<void>;
    handOver?: (body: Uint8Array | null) => Promise<Response>;
    delivered?: () => Promise<boolean>;
  };
  /** Facts that are known about a request while it is answered. A refusal is recorded with them. */
  Variables: { trial?: { id: string; attempt: number }; body?: { size: number; digest: Uint8Array } };
};
