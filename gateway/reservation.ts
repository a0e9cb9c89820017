import { LEASE_SECONDS } from '../store/queries/calls-under-way.ts';
import { removeReservation, renewReservation } from '../store/queries/reserve-call.ts';
import type { GatewayDeps } from './deps.ts';
import type { Failure } from './failure.ts';

/**
 * A call's part of its trial's budgets, which ends when the call is recorded. `tokens` limits what it may sample; null without a budget of
 * tokens. `cut` says why replies that reach the limit end, if they could have been longer.
 */
export type Reservation = { trialId: string; callId: string; tokens: number | null; cut: Failure | null };

/** Renews the reservation on a timer; returns a stop function. If this process dies, the reservation expires. */
export function keepReserved({ db }: GatewayDeps, reservation: Reservation): () => void {
  // A failed renewal loses the reservation only if another call takes it; recording then refuses the call.
  const beat = setInterval(() => void renewReservation(db, reservation).catch(() => {}), (LEASE_SECONDS * 1000) / 3);
  return () => clearInterval(beat);
}

/** Releases the reservation of a call that will not be recorded, once `asked` is over. If the store cannot be reached, the reservation expires. */
export async function releaseReservation({ db }: Pick<GatewayDeps, 'db'>, reservation: Pick<Reservation, 'trialId' | 'callId'>, asked?: Promise<unknown>): Promise<void> {
  await asked?.catch(() => {});
  await removeReservation(db, reservation).catch(() => {});
}
