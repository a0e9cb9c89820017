import type { Deps } from '../deps.ts';
import { checkEvaluation } from './check-evaluation.ts';
import { planEvaluation } from './plan-evaluation.ts';
import { planEvaluationOnDemand } from './plan-evaluation-on-demand.ts';

/** Activities of evaluations: those of a run and those on demand. */
export const evaluationActivities = (deps: Deps) => ({
  checkEvaluation: checkEvaluation(deps),
  planEvaluation: planEvaluation(deps),
  planEvaluationOnDemand: planEvaluationOnDemand(deps),
});
