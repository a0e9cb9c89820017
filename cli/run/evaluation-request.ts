import type { EvaluationRequest } from '../../activities/evaluation/plan-evaluation-on-demand.ts';
import { TrialgateError } from '../../core/errors.ts';
import { parseRunOrPolicy } from './name-run.ts';
import { folderOf } from './parse-changes.ts';
import { wholeNumber } from './train-file.ts';

/** Returns the request of `evaluate` and `schedule` from their arguments. @throws TrialgateError `bad_input` */
export function evaluationRequest(policy: string, options: { samples?: string; tasks?: string[] }): EvaluationRequest {
  const request: EvaluationRequest = parseRunOrPolicy(policy);
  if (options.samples !== undefined) request.samples = wholeNumber(options.samples, '--samples');
  if (request.samples === 0) throw new TrialgateError('bad_input', '--samples: expected at least 1, found 0');
  if (options.tasks) request.tasks = options.tasks.map((folder) => folderOf(folder));
  return request;
}
