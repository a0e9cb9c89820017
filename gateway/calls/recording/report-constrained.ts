import type { CallRecord } from '../../../store/queries/record-calls.ts';
import type { TrialNow } from '../../../store/queries/find-trials.ts';
import { constrainedAdvice } from '../sampling/framework-modes.ts';
import type { CallDeps } from '../deps.ts';

/** Counts a recorded call whose request forces the form of the reply, and logs once per trial that such calls are not trained. */
export function reportConstrained(
  { counters, log }: Pick<CallDeps, 'counters' | 'log'>,
  { id: trialId, runId }: Pick<TrialNow, 'id' | 'runId'>,
  { sampling, choices }: CallRecord,
): void {
  const { constraints, constrained_decoding: decoding, client } = sampling;
  if (!Array.isArray(constraints)) return;
  const fields = constraints.map(String);
  for (const field of fields) counters.constrained[decoding === 'hint' ? 'hint' : 'enforce'].add(field);
  if (choices.every(({ untrainable }) => untrainable !== 'sampling_not_reproducible') || decoding === 'hint') return;
  if (counters.isFirstReport(trialId))
    log(
      `trial ${trialId}: calls are not trained: ${constrainedAdvice(fields, typeof client === 'string' ? client : null)}`,
      { level: 'warning', run_id: runId ?? undefined, trial_id: trialId },
    );
}
