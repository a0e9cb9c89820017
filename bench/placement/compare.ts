import { ORACLES } from './oracle.ts';
import { ours, withoutRoom } from './ours.ts';
import { ROUTER_POLICIES } from './policies.ts';
import { scenariosOf } from './scenarios.ts';
import { simulate, type Figures } from './simulate.ts';

export type Row = { scenario: string; policy: string; seed: number; figures: Figures };

export const POLICIES = [...ROUTER_POLICIES, withoutRoom, ours, ...ORACLES];

export function* compare(seeds: number): Generator<Row> {
  for (let seed = 1; seed <= seeds; seed++)
    for (const { scenario } of scenariosOf(seed))
      for (const policy of POLICIES)
        yield { scenario: scenario.name, policy: policy.name, seed, figures: simulate(scenario, policy, seed) };
}
