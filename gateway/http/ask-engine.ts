import type { TrialNow } from '../../store/queries/find-trials.ts';
import { IdleWatch } from '../engines/idle-watch.ts';
import type { GatewayDeps } from './deps.ts';
import type { Lease } from '../engines/lease.ts';
import { clientGone, engineSilent, Failure } from '../failure.ts';

/** Asks a trial's engine a question that is not a call of the model. */
export async function askEngine<T>(
  deps: GatewayDeps,
  trial: TrialNow,
  agent: AbortSignal,
  ask: (lease: Lease, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const { holdMs, idleMs } = deps.settings;
  const silent = new AbortController();
  const idle = new IdleWatch(idleMs, () => silent.abort());
  try {
    const lease = await deps.engines.lease(trial, Date.now() + holdMs, agent);
    return await idle.while(ask(lease, AbortSignal.any([agent, silent.signal]))).finally(lease.release);
  } catch (error) {
    if (error instanceof Failure) throw error;
    if (agent.aborted) throw clientGone();
    if (silent.signal.aborted) throw engineSilent(idleMs);
    throw new Failure(
      502,
      'engine_cut',
      `the engine did not answer: ${error instanceof Error ? error.message : String(error)}`,
    );
  } finally {
    idle.stop();
  }
}
