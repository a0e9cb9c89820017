import { batchActivities } from './batch/index.ts';
import type { Deps } from './deps.ts';
import { evaluationActivities } from './evaluation/index.ts';
import { externalActivities } from './external/index.ts';
import { iterationActivities } from './iteration/index.ts';
import { poolActivities } from './pool/index.ts';
import { rolloutActivities } from './rollout/index.ts';
import { runActivities } from './run/index.ts';
import { temporalActivities } from './temporal/index.ts';
import { hostActivities, sandboxActivities, trialActivities } from './trial/index.ts';

/** The activities of the queue `trialgate`. Any activity worker can run them. */
const generalActivities = (deps: Deps) => ({
  ...runActivities(deps),
  ...iterationActivities(deps),
  ...rolloutActivities(deps),
  ...trialActivities(deps),
  ...externalActivities(deps),
  ...batchActivities(deps),
  ...evaluationActivities(deps),
  ...poolActivities(deps),
  ...temporalActivities(deps),
});

/** Every activity in TypeScript, by its task queue (`cli/worker.ts`). `sandbox` is polled only by hosts with a free slot, `host` by one host alone. */
export const createActivities = (deps: Deps) => ({
  general: generalActivities(deps),
  sandbox: sandboxActivities(deps),
  host: hostActivities(deps),
});

/** One type for each task queue, so that a call of an activity on a queue that does not have it is a type error. */
export type GeneralActivities = ReturnType<typeof generalActivities>;
export type SandboxActivities = ReturnType<typeof sandboxActivities>;
export type HostActivities = ReturnType<typeof hostActivities>;
