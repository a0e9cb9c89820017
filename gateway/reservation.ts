import { LEASE_SECONDS } from '../store/queries/calls-under-way.ts';
import { giveBackReservation, renewReservation } from '../store/queries/reserve-call.ts';
import type { GatewayDeps } from './deps.ts';
import type { Failure } from './failure.ts';

/** A call's part of its trial's budgets: recording the call ends it. `tokens`: how many it may sample; null without a budget of them. `cut`: why replies that have used them end, where they could have been longer. */
export type Reservation = { trialId: string; callId: string; tokens: number | null; cut: Failure | null };

/** Says again and again that the call is under way, until what it returns is called: what a dead process has reserved is soon free. */
export function keepReserved({ db }: GatewayDeps, reservation: Reservation): () => void {
  // What cannot be renewed in time is lost only if another call takes its place; then the record says so.
  const beat = setInterval(() => void renewReservation(db, reservation).catch(() => {}), (LEASE_SECONDS * 1000) / 3);
  return () => clearInterval(beat);
}

/** Of a call that will not be recorded, once `asked` is over. Where the store does not hear it, what was reserved ends by its time. */
export async function giveBack({ db }: Pick<GatewayDeps, 'db'>, reservation: Pick<Reservation, 'trialId' | 'callId'>, asked?: Promise<unknown>): Promise<void> {
  await asked?.catch(() => {});
  await giveBackReservation(db, reservation).catch(() => {});
}
