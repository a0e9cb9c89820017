import { join } from 'node:path';
import { REPOSITORY } from '../../core/repository.ts';
import type { RewardFunction } from '../../core/run-config/reward.ts';

/** The folder of the bundled rewards, a file for each, whose function is called `score`. */
export const rewardsFolder = join(REPOSITORY, 'rewards');

/** The bundled rewards, and what each needs besides Python's own library. */
export const BUNDLED: Record<string, Partial<Pick<RewardFunction, 'python' | 'network'>>> = {
  exact_match: {},
  numeric: {},
  math_equal: { python: { requirements: ['math-verify[antlr4_13_2]==0.8.0'] } },
  code_tests: {},
  json_schema: { python: { requirements: ['jsonschema==4.25.1'] } },
  judge: { network: 'host' },
};
