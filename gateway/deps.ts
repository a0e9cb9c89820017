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
  /** What another thread of this process has counted. */
  otherThread?: () => Promise<Snapshot | null>;
  /** A file of Swagger UI, whose page shows the API; null where there is none. */
  docsFile: (name: string) => Promise<Uint8Array<ArrayBuffer> | null>;
  /** Aborts when the process must let go of what still runs. */
  stopping: AbortSignal;
};

/**
 * What a runtime gives each request. `cut` breaks its connection, where an unfinished body does not do that by itself. `handOver`
 * gives the request to the thread for heavy ones, with its body where that was read, and returns what its handler returns then.
 * `delivered` resolves, when the reply has ended, to whether its agent got all of it.
 */
export type GatewayEnv = {
  Bindings: { cut?: () => Promise<void>; handOver?: (body: Uint8Array | null) => Promise<Response>; delivered?: () => Promise<boolean> };
  /** What is known of a request while it is answered, for who keeps it should it be refused. */
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
  /** Of one request, once it is decoded. */
  maxBodyBytes: number;
  /** Values and keys of one request's JSON, and its levels: `gateway/json-bounds.ts`. */
  maxBodyNodes: number;
  maxBodyDepth: number;
  /** Of all calls that are open in one thread, decoded. One trial may hold a quarter, and one call at least. */
  maxBodyBytesInFlight: number;
  /** Of one trial, in this process. */
  maxCallsInFlight: number;
  /** What may be held of what open trials have said; the rest is read back. */
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
  // As much as Anthropic's own API takes.
  maxBodyBytes: 32 * 2 ** 20,
  maxBodyNodes: 500_000,
  maxBodyDepth: MAX_DEPTH,
  maxBodyBytesInFlight: 256 * 2 ** 20,
  maxCallsInFlight: 256,
  conversationMemoryBytes: 128 * 2 ** 20,
  compat: 'none',
};
