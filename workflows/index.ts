export { evaluatePolicy } from './evaluate-policy.ts';
export { evaluateRun, evaluateVersion } from './evaluate-run.ts';
export { grpoIteration } from './grpo-iteration.ts';
export { restorePool } from './repair-pool.ts';
export { publishVersion } from './publish-version.ts';
export { rescoreIteration } from './rescore-iteration.ts';
export { rolloutGroup } from './rollout-group.ts';
export { trainRun } from './train-run.ts';
