import type { Log } from '../../core/log.ts';
import type { Database } from '../../store/database.ts';
import type { Conversations } from '../conversations/conversations.ts';
import type { EnginePool } from '../engines/pool.ts';
import type { Deliveries } from '../record/deliveries.ts';
import type { LongCalls } from '../record/long-calls.ts';
import type { Recorder } from '../record/recorder.ts';
import type { SameCalls } from '../record/same-calls.ts';
import type { Trials } from '../record/trials.ts';
import type { GatewaySettings } from '../settings.ts';
import type { Counters } from './counters.ts';

/** The parts of the gateway that the stages of a call use. */
export type CallDeps = {
  db: Database;
  trials: Trials;
  recorder: Recorder;
  engines: EnginePool;
  conversations: Conversations;
  counters: Counters;
  sameCalls: SameCalls;
  deliveries: Deliveries;
  longCalls: LongCalls;
  settings: GatewaySettings;
  /** Writes one line for each failure. */
  log: Log;
  /** Aborts when the process must stop what is still running. */
  stopping: AbortSignal;
};
