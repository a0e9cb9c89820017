import { table } from '../../../cli/show/table.ts';
import { policiesAt, type Policy } from '../policies.ts';
import { ceiling, CEILING } from './ceiling.ts';
import { Durations, WIDTH } from './durations.ts';
import { measure, QUANTILES, type Figures } from './figures.ts';
import { consultOracle, ORACLE } from './oracle.ts';
import { synchronous } from './rules.ts';

export type SimulateOptions = {
  steps: number;
  seeds: number;
  medianSeconds: number;
  shared: number;
  progress: (line: string) => void;
};
export type SimulatedRow = { policy: string; staleness: number; seed: number; figures: Figures };
export type SimulationResult = {
  rows: SimulatedRow[];
  ceilings: { staleness: number; name: string; useful: number; rate: number }[];
  text: string;
};

const LIMITS = [0, 1, 2];
const ORACLES = [
  { name: 'oracle: most useful time', objective: 'useful' },
  { name: 'oracle: the same, 66 a step', objective: 'useful', batch: 66 },
  { name: 'oracle: most samples', objective: 'rate' },
] as const;

/** Simulates every policy, the oracle and the ceiling over the same trials. */
export function simulate(options: SimulateOptions): SimulationResult {
  const { steps, seeds, shared, progress } = options;
  const rows: SimulatedRow[] = [];
  for (const staleness of LIMITS) {
    for (let seed = 1; seed <= seeds; seed++) {
      for (const policy of policiesAt(staleness))
        rows.push({
          policy: policy.name,
          staleness,
          seed,
          figures: measure(policy.rules, new Durations(seed, WIDTH, shared), { steps }),
        });
      progress(`simulated staleness ${staleness}, seed ${seed} of ${seeds}`);
      if (staleness === 0) continue;
      for (const { name, ...asked } of ORACLES) {
        rows.push({
          policy: name,
          staleness,
          seed,
          figures: consultOracle({ ...synchronous, maxStaleness: staleness }, { seed, shared, steps, ...asked }),
        });
        progress(`${name}, staleness ${staleness}, seed ${seed}`);
      }
    }
  }
  const ceilings = LIMITS.slice(1).flatMap((staleness) =>
    [false, true].map((knowing) => ({
      staleness,
      name: `ceiling, ${knowing ? '' : 'not '}knowing durations`,
      ...ceiling({ ...synchronous, maxStaleness: staleness }, knowing),
    })),
  );
  return { rows, ceilings, text: report(rows, ceilings, options) };
}

function report(rows: SimulatedRow[], ceilings: SimulationResult['ceilings'], options: SimulateOptions): string {
  const mean = (staleness: number, policy: string, key: (figures: Figures) => number) => {
    const values = rows
      .filter((row) => row.staleness === staleness && row.policy === policy)
      .map(({ figures }) => key(figures));
    return values.reduce((sum, value) => sum + value, 0) / values.length;
  };
  const anHour = 3600 / options.medianSeconds;
  const baseline = mean(0, 'synchronous', ({ rate }) => rate);
  const named = [...new Map(rows.map((row) => [`${row.staleness} ${row.policy}`, row])).values()];
  const lines = named.map(({ staleness, policy }) => {
    const of = (key: (figures: Figures) => number) => mean(staleness, policy, key);
    const useful = of((figures) => figures.useful);
    const best = mean(staleness, 'oracle: most useful time', (figures) => figures.useful);
    const most = mean(staleness, 'oracle: most samples', (figures) => figures.rate);
    const rate = of((figures) => figures.rate);
    return [
      `${staleness}`,
      policy,
      useful.toFixed(3),
      ratio(useful / best),
      of((figures) => figures.lost).toFixed(3),
      ...(['nothing', 'train', 'publish'] as const).map((doing) => of(({ idle }) => idle[doing]).toFixed(3)),
      (rate * anHour).toFixed(0),
      (rate / baseline).toFixed(1),
      ratio(rate / most),
      of((figures) => figures.samplesPerStep).toFixed(1),
      of(({ staleness: shares }) => shares.reduce((sum, share, age) => sum + share * age, 0)).toFixed(2),
      ...QUANTILES.map((_, band) => percent(of(({ trainedShare }) => trainedShare[band] ?? Number.NaN))),
    ];
  });
  for (const { staleness, name, useful, rate } of ceilings) {
    const most = mean(staleness, 'oracle: most samples', (figures) => figures.rate);
    const best = mean(staleness, 'oracle: most useful time', (figures) => figures.useful);
    lines.push([
      `${staleness}`,
      name,
      useful.toFixed(3),
      ratio(useful / best),
      '–',
      '–',
      '–',
      '–',
      ...(name.includes('not')
        ? [(rate * anHour).toFixed(0), (rate / baseline).toFixed(1), ratio(rate / most)]
        : ['–', '–', '–']),
      '–',
      '–',
      ...QUANTILES.map(() => '–'),
    ]);
  }
  const bands = QUANTILES.map((end, i) => `${(QUANTILES[i - 1] ?? 0) * 100}-${end * 100}%`);
  return [
    assumptions(options),
    table(
      [
        'limit',
        'policy',
        'useful',
        'of oracle',
        'lost',
        'idle',
        'training',
        'publishing',
        'samples/h',
        '× sync',
        'of most',
        'a step',
        'staleness',
        ...bands,
      ],
      lines.toSorted((a, b) => Number(a[0]) - Number(b[0])),
    ),
    `useful, lost: slot-time of trained and of lost trials over all slot-time; the rest had no trial: nothing could start (idle), while a step was trained or published; of most: of the samples of the oracle that wants most samples; the last columns: how many
of the trials that were started are trained on, by their duration's quantile (a policy that favors none has 100 in each).`,
    LIMITS.map((limit) =>
      policiesAt(limit)
        .map((policy) => aboutOf(policy))
        .join('\n'),
    ).join('\n'),
    ORACLE,
    CEILING,
  ].join('\n\n');
}

const aboutOf = ({ staleness, name, about }: Policy) => `${staleness} ${name}: ${about}`;

function assumptions({ steps, seeds, medianSeconds, shared }: SimulateOptions): string {
  const { slots, groupsPerStep, groupSize, deadline, trainTime, publishTime } = synchronous;
  return `Trial times are log-normal, p99 = 20 x the median (sigma ${(Math.log(20) / 2.326_35).toFixed(3)}), ${shared > 0 ? `with ${shared} of the logarithm's variance shared by a group's trials` : 'independent'}; the
median is ${medianSeconds} s. ${slots} slots; ${groupsPerStep} groups x ${groupSize} trials a step; a trial is cut at ${deadline} medians and trained on with its reward; a train step takes ${trainTime}
medians, a publication ${publishTime} (engines stand still). ${steps} steps after 20, mean of ${seeds} seed${seeds > 1 ? 's' : ''}.`;
}

const ratio = (value: number): string => (Number.isFinite(value) ? value.toFixed(3) : '–');
const percent = (share: number): string => (Number.isFinite(share) ? (100 * share).toFixed(0) : '–');
