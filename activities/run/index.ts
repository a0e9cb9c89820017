import type { Deps } from '../deps.ts';
import { configureRun } from './configure-run.ts';
import { planBase } from './plan-base.ts';
import { whileHeartbeating } from '../temporal/while-heartbeating.ts';
import { prepareRun } from './prepare-run.ts';
import { setRunStatus } from './set-run-status.ts';

/** Activities of a run as a whole: its settings, status and version 0. */
export const runActivities = (deps: Deps) => ({
  configureRun: configureRun(deps),
  planBase: planBase(deps),
  prepareRun: (input: Parameters<ReturnType<typeof prepareRun>>[0]) =>
    whileHeartbeating((signal) => prepareRun(deps)(input, signal)),
  setRunStatus: setRunStatus(deps),
});
