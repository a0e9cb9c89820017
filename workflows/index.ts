export { evaluatePolicy } from './evaluate-policy.ts';
export { grpoIteration } from './grpo-iteration.ts';
export { publishVersion } from './publish-version.ts';
export { rolloutGroup } from './rollout-group.ts';
export { trainRun } from './train-run.ts';
