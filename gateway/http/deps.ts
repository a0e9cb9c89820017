import type { FoundBy } from '../../store/schema.ts';
import type { Snapshot } from '../calls/counters.ts';
import type { CallDeps } from '../calls/deps.ts';
import type { EngineConnection } from '../engines/connection.ts';
import type { InFlight } from '../engines/in-flight.ts';
import type { CheckpointReader } from '../relay/checkpoints.ts';
import type { RelayHub } from '../relay/hub.ts';
import type { OperateRun, StartRun } from './operate.ts';
import type { OpenBodies } from './bodies/open-bodies.ts';
import type { ReadGate } from './read-gate.ts';
import type { RunEvents } from './run-events.ts';
import type { Refusals } from './refusals.ts';
import type { Database } from '../../store/database.ts';

export type GatewayDeps = CallDeps & {
  /** Requests whose reply has not ended, by trial. */
  openCalls: InFlight;
  openBodies: OpenBodies;
  refusals: Refusals;
  /** The secret from which the attempts' keys are derived. */
  secret: string;
  /** The key of the session routes. Null leaves them open, for a gateway that listens on loopback only. */
  adminKey: string | null;
  /** The key that opens what only reads; null: there is none. */
  readKey: string | null;
  /** The workers that have dialled in; null outside relay mode. */
  relay: RelayHub | null;
  /** Returns the connection to the engine of a relay worker that another gateway has, or null. */
  relayElsewhere?: (worker: string) => Promise<EngineConnection | null>;
  /** The deployment's checkpoints, of which relay workers fetch what their engines load. Absent in a runtime without files. */
  checkpoints?: CheckpointReader;
  /** Returns how the ways to find engines fare that this process follows. */
  discovery: () => DiscoveryState[];
  /** Returns the counts of this process's other thread. */
  otherThread?: () => Promise<Snapshot | null>;
  /** Returns a file of Swagger UI for the API's page, or null if there is none. */
  docsFile: (name: string) => Promise<Uint8Array<ArrayBuffer> | null>;
  /** Returns a file of the built page on runs, or null if there is none. */
  pageFile: (name: string) => Promise<Uint8Array<ArrayBuffer> | null>;
  /** The database for what a person looks at: apart from the one of calls where the runtime allows it, so that no call waits for it. */
  reader: Database;
  /** Lets only as many readers in as have a connection. */
  readGate: ReadGate;
  /** Tells pages of changes. Absent in a runtime whose requests share nothing. */
  runEvents?: RunEvents;
  /** Changes runs. Absent without Temporal. */
  operateRun?: OperateRun;
  /** Starts runs. Present where `operateRun` is. */
  startRun?: StartRun;
};

/** A way to find the deployment's engines. `engines` is how many it found last. It is null while it has not found any yet. */
export type DiscoveryState = {
  foundBy: FoundBy;
  engines: number | null;
  failure: { message: string; since: Date } | null;
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
  Variables: {
    trial?: { id: string; attempt: number; runId?: string | null };
    body?: { size: number; digest: Uint8Array };
  };
};
