import type { TrialNow } from '../../store/queries/find-trials.ts';
import type { CallDeps } from './deps.ts';
import { oneLine } from '../../core/one-line.ts';
import type { LeftOut } from '../protocols/unserved.ts';

/** Counts and logs the parts of a trial's request that the model is not shown, each once. */
export function reportLeftOut(
  { counters, log }: Pick<CallDeps, 'counters' | 'log'>,
  { id: trialId, runId }: Pick<TrialNow, 'id' | 'runId'>,
  fresh: readonly LeftOut[],
): void {
  for (const { value } of fresh) counters.leftOut.add(typeof value.type === 'string' ? value.type : 'other');
  if (fresh.length === 0) return;
  const named = fresh.slice(0, 5).map(({ at, value }) => `${at} (${oneLine(String(value.type).slice(0, 60))})`);
  log(
    `trial ${trialId}: left out of the prompt, because the engine cannot take it: ${named.join(', ')}${fresh.length > 5 ? ` and ${fresh.length - 5} more` : ''}. The record keeps it`,
    { level: 'warning', run_id: runId ?? undefined, trial_id: trialId },
  );
}
