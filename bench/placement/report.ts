import { table } from '../../cli/show/table.ts';
import type { Row } from './compare.ts';
import { ORACLES } from './oracle.ts';
import { ours } from './ours.ts';
import { scenariosOf, SESSIONS } from './scenarios.ts';
import type { Figures } from './simulate.ts';

/** The least share of the better oracle's hit rate and speed. */
export const AIM = 0.9;

type Share = { scenario: string; policy: string; hit: number; wall: number };

/** Returns for each scenario the policy's share of the better oracle's hit rate, and of its speed. */
export function sharesOf(rows: readonly Row[], policy = ours.name): Share[] {
  return [...new Set(rows.map(({ scenario }) => scenario))].map((scenario) => {
    const mean = meansIn(rows, scenario);
    const oracles = ORACLES.map(({ name }) => name);
    const hit = Math.max(...oracles.map((name) => mean(name, 'hitRate')));
    const wall = Math.min(...oracles.map((name) => mean(name, 'wallSeconds')));
    return { scenario, policy, hit: mean(policy, 'hitRate') / hit, wall: wall / mean(policy, 'wallSeconds') };
  });
}

function meansIn(rows: readonly Row[], scenario: string) {
  return (policy: string, key: keyof Figures): number => {
    const values = rows
      .filter((row) => row.scenario === scenario && row.policy === policy)
      .map(({ figures }) => figures[key]);
    return values.reduce((sum, value) => sum + value, 0) / values.length;
  };
}

const HEAD = [
  'policy',
  'hit rate',
  'worst minute',
  'wall s',
  'p50 s',
  'p99 s',
  'preemptions',
  'hits of oracle',
  'speed of oracle',
];

export function report(rows: readonly Row[], seeds: number): string {
  const parts = scenariosOf(1).map(({ about, scenario: { name: scenario } }) => {
    const mean = meansIn(rows, scenario);
    const lines = [...new Set(rows.map(({ policy }) => policy))].map((policy) => {
      const share = sharesOf(rows, policy).find((each) => each.scenario === scenario);
      return [
        policy,
        `${(100 * mean(policy, 'hitRate')).toFixed(1)}%`,
        `${(100 * mean(policy, 'worstHitRate')).toFixed(0)}%`,
        mean(policy, 'wallSeconds').toFixed(0),
        mean(policy, 'p50').toFixed(1),
        mean(policy, 'p99').toFixed(0),
        mean(policy, 'preemptions').toFixed(0),
        share?.hit.toFixed(2) ?? '–',
        share?.wall.toFixed(2) ?? '–',
      ];
    });
    return `${scenario}: ${about}\n\n${table(HEAD, lines)}`;
  });
  return [
    `${SESSIONS} sessions a scenario, about ${Math.round(rows.reduce((sum, { figures }) => sum + figures.calls, 0) / rows.length)} calls; mean of ${seeds} seed${seeds === 1 ? '' : 's'}. The sessions are drawn from distributions fitted to published recordings
(bench/placement/sessions.ts names them), not recorded here. Engines are simulated (bench/placement/engine.ts). The time of a call
includes its wait at the gateway. "worst minute" is the lowest hit rate of one engine within one minute. The last two columns compare with
the better of the two oracles, in hit rate and in time: above 1 is better than both, because neither lets calls wait.`,
    ...parts,
  ].join('\n\n');
}
