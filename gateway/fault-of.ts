import type { Fault } from '../store/schema.ts';
import type { Failure } from './failure.ts';

const BY_CODE: Record<string, Fault> = {
  agent_disconnected: 'client',
  bad_engine_reply: 'engine',
  engine_cut: 'engine',
  engine_error: 'engine',
  engine_full: 'engine',
  engine_paused: 'engine',
  engine_timeout: 'engine',
  engine_unavailable: 'engine',
  weight_version_mismatch: 'engine',
  not_recorded: 'store',
  reservation_lost: 'store',
  store_unavailable: 'store',
};

/** Returns the party that caused a call to fail, from what the gateway itself saw. Below status 500 that is the request. */
export const faultOf = ({ fault, code, status }: Failure): Fault =>
  fault ?? BY_CODE[code] ?? (status < 500 ? 'request' : 'gateway');
