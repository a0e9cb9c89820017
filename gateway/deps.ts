import type { Database } from '../store/database.ts';
import type { Counters, Snapshot } from './counters.ts';
import type { EnginePool } from './engines/pool.ts';
import type { InFlight } from './in-flight.ts';
import { MAX_DEPTH } from './json.ts';
import type { OpenBodies } from './open-bodies.ts';
import type { Recorder } from './recorder/recorder.ts';
import type { Deliveries } from './retry/deliveries.ts';
import type { Refusals } from './refusals.ts';
import type { SameCalls } from './retry/same-calls.ts';
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
  Bindings: { cut?: () => Promise<void>; handOver?: (body: Uint8Array | null) => Promise<Response>; delivered?: () => Promise<boolean> };
  /** Facts that are known about a request while it is answered. A refusal is recorded with them. */
  Variables: { trial?: { id: string; attempt: number }; body?: { size: number; digest: Uint8Array } };
};

export type GatewaySettings = {
  /** True to continue conversations from their recorded ids where the engine can. */
  tokenIn: boolean;
  /** The answer to a call after the end of its trial's budget: an empty reply that ends by `length`, or a 429 that says not to retry. */
  budgetEnd: 'length' | 'refuse';
  /** True to answer 404 for any model name but the engine's. */
  strictModel: boolean;
  /** The time for which a call waits for a replica in rotation. */
  holdMs: number;
  /**
   * The time for which an engine may be silent within a stream. Before the first bytes the gateway then asks whether the engine is alive.
   * A call also waits this long for reserved parts of a budget.
   */
  idleMs: number;
  /** After this time without an event a stream sends its agent a comment line, which clients skip. */
  keepAliveMs: number;
  /** The time for which a request waits for the database. */
  storeWaitMs: number;
  /** The limit of one request's body after decoding. */
  maxBodyBytes: number;
  /** Limits of one request's JSON: its values and keys, and its levels (`gateway/json-bounds.ts`). */
  maxBodyNodes: number;
  maxBodyDepth: number;
  /** The limit of all open calls' decoded bodies in one thread. One trial may hold a quarter of it, or a single call of any size. */
  maxBodyBytesInFlight: number;
  /** The limit of one trial's open calls in this process. */
  maxCallsInFlight: number;
  /** The limit of memory for the content of open trials' calls. The gateway reads the rest from the store when needed. */
  conversationMemoryBytes: number;
  /** `verl`: sessions outside any run also open by their URL alone, as in verl-recipe PR 83. */
  compat: 'none' | 'verl';
};

export const DEFAULT_SETTINGS: GatewaySettings = {
  tokenIn: true,
  budgetEnd: 'length',
  strictModel: false,
  holdMs: 20_000,
  idleMs: 600_000,
  keepAliveMs: 15_000,
  storeWaitMs: 10_000,
  // Anthropic's own API has the same limit.
  maxBodyBytes: 32 * 2 ** 20,
  maxBodyNodes: 500_000,
  maxBodyDepth: MAX_DEPTH,
  maxBodyBytesInFlight: 256 * 2 ** 20,
  maxCallsInFlight: 256,
  conversationMemoryBytes: 128 * 2 ** 20,
  compat: 'none',
};
