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
  /** Derives the attempts' keys. */
  secret: string;
  /** Opens the session routes; null leaves them open, for a gateway that listens on loopback alone. */
  adminKey: string | null;
  settings: GatewaySettings;
  /** One line a failure. */
  log: (line: string) => void;
  /** Returns the counts of another thread of this process. */
  otherThread?: () => Promise<Snapshot | null>;
  /** A file of Swagger UI, whose page shows the API; null where there is none. */
  docsFile: (name: string) => Promise<Uint8Array<ArrayBuffer> | null>;
  /** Aborts when the process must let go of what still runs. */
  stopping: AbortSignal;
};

/**
 * The functions that a runtime gives each request. `cut` breaks its connection, for a runtime in which an unfinished body does not.
 * `handOver` gives the request to the thread for heavy ones, with its body if that was read, and returns that thread's result. `delivered`
 * resolves when the reply has ended, to whether the agent received all of it.
 */
export type GatewayEnv = {
  Bindings: { cut?: () => Promise<void>; handOver?: (body: Uint8Array | null) => Promise<Response>; delivered?: () => Promise<boolean> };
  /** The facts known about a request while it is answered. A refusal is recorded with them. */
  Variables: { trial?: { id: string; attempt: number }; body?: { size: number; digest: Uint8Array } };
};

export type GatewaySettings = {
  /** Continues a conversation from its recorded ids where the engine can. */
  tokenIn: boolean;
  /** At the end of a trial's budget: an empty reply that ends by `length`, or a 429 that says not to retry. */
  budgetEnd: 'length' | 'refuse';
  /** A model name other than the engine's is 404. */
  strictModel: boolean;
  /** How long a call waits for a replica in rotation. */
  holdMs: number;
  /** How long an engine may be silent within a stream. Before a reply's first bytes it is then asked whether it is alive. How long a call waits for what others have reserved of a budget. */
  idleMs: number;
  /** How long a stream may bring its agent nothing before it gets a line that clients skip. */
  keepAliveMs: number;
  /** How long a request waits for the database. */
  storeWaitMs: number;
  /** The limit of one request's body, after decoding. */
  maxBodyBytes: number;
  /** The limits of one request's JSON: its values and keys, and its levels (`gateway/json-bounds.ts`). */
  maxBodyNodes: number;
  maxBodyDepth: number;
  /** The limit of all open calls' decoded bodies in one thread. One trial may hold a quarter of it, and at least one call. */
  maxBodyBytesInFlight: number;
  /** Of one trial, in this process. */
  maxCallsInFlight: number;
  /** The limit of the memory for the content of open trials' calls. The gateway reads the rest back from the store. */
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
  // The same limit as Anthropic's own API.
  maxBodyBytes: 32 * 2 ** 20,
  maxBodyNodes: 500_000,
  maxBodyDepth: MAX_DEPTH,
  maxBodyBytesInFlight: 256 * 2 ** 20,
  maxCallsInFlight: 256,
  conversationMemoryBytes: 128 * 2 ** 20,
  compat: 'none',
};
