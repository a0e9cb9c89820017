import { useMemo, useState } from 'react';
import { Link } from 'wouter';
import type { Evaluation, RunDetails, RunList, Take, TrialgateClient } from '../../../clients/typescript/client.ts';
import { ago, duration, percent, reward, short, visible, when } from '../format.ts';
import { Badge } from '../parts/badge.tsx';
import { Choice } from '../parts/choice.tsx';
import { Crumbs, iterationPath, runPath, timelinePath } from '../parts/crumbs.tsx';
import { Curve } from '../parts/curve.tsx';
import { Text } from '../parts/message.tsx';
import { Operate } from '../parts/operate.tsx';
import { Recorded } from '../parts/recorded.tsx';
import { ShowAnswer } from '../parts/show-answer.tsx';
import { WideTable, type Column } from '../parts/wide-table.tsx';
import { overlay, type Chart, type Line } from '../overlay.ts';
import { hasEnded } from '../has-ended.ts';
import { useAnswer } from '../use-answer.ts';
import { useSearchChange } from '../use-search-change.ts';
import { useTitle } from '../use-title.ts';

type RunNow = { run: RunDetails; takes: Take[] };

export function RunView({ runId }: { runId: string }) {
  useTitle(runId);
  const answer = useAnswer({
    key: `run ${runId}`,
    ask: (client, before: RunNow | null, signal) => readRunNow(client, runId, before, signal),
    isFinal: ({ run }) => hasEnded(run.status),
    runOf: () => runId,
  });
  return (
    <>
      <Crumbs of={[]} />
      <h1>{runId}</h1>
      <ShowAnswer answer={answer}>
        {({ run, takes }) => (
          <>
            <p>
              <Badge word={run.status} /> started <span title={when(run.created_at)}>{ago(run.created_at)}</span>
              {run.forked_from !== null && <>, forked from {run.forked_from}</>}
              {run.rescores !== null && <>, trains on {run.rescores} again</>}
              {run.paused_until !== null && (
                <>, paused: it starts no more groups and no train step until {when(run.paused_until)}</>
              )}
              {' · '}
              <Link href={`${runPath(runId)}/dropped`}>dropped work</Link>
              {' · '}
              <Link href={`${runPath(runId)}/search`}>search transcripts</Link>
            </p>
            {run.reason !== null && (
              <p className="trouble">
                <Recorded text={run.reason} />
              </p>
            )}
            <Operate runId={runId} run={run} takes={takes} onChange={answer.refresh} />
            <Curves runId={runId} takes={takes} evaluations={run.evaluations} />
            <Evaluations runId={runId} evaluations={run.evaluations} />
            <Iterations runId={runId} takes={takes} />
            {run.quarantined.length > 0 && (
              <section>
                <h2>Quarantined tasks</h2>
                <ul>
                  {run.quarantined.map(({ task, reason }) => (
                    <li key={task}>
                      <strong>
                        <Recorded text={task} />
                      </strong>
                      : <Recorded text={reason} />
                    </li>
                  ))}
                </ul>
              </section>
            )}
            <details>
              <summary>Settings</summary>
              <Text text={JSON.stringify(run.config, null, 2)} />
            </details>
          </>
        )}
      </ShowAnswer>
    </>
  );
}

/** Asks for the whole run once, and then only for the iterations that may have changed. */
async function readRunNow(
  client: TrialgateClient,
  runId: string,
  before: RunNow | null,
  signal: AbortSignal,
): Promise<RunNow> {
  const run = await client.run(runId, signal);
  const known = before?.takes ?? [];
  const first = firstUnsettled(known, maxStalenessOf(run.config));
  const takes = known.filter(({ iteration }) => iteration < first);
  for (let from: number | null = first; from !== null;) {
    const page = await client.iterations(runId, { from, limit: 500 }, signal);
    takes.push(...page.iterations);
    from = page.next_from;
  }
  return { run, takes };
}

/**
 * Returns the first iteration whose numbers may still change: it is open, trials of it run, or its groups may yet be in a batch of a later
 * iteration.
 */
function firstUnsettled(takes: readonly Take[], maxStaleness: number): number {
  const newest = takes.at(-1)?.iteration ?? 0;
  const open = takes.find(({ status, trials }) => status === 'open' || (trials['open'] ?? 0) > 0);
  return Math.max(0, Math.min(newest - maxStaleness - 1, open?.iteration ?? newest));
}

function maxStalenessOf(config: unknown): number {
  if (typeof config !== 'object' || config === null || !('max_staleness' in config)) return 0;
  return typeof config.max_staleness === 'number' ? config.max_staleness : 0;
}

const AXES = { iteration: 'iteration', minutes: 'minutes since the start', trials: 'trials so far' } as const;
type Axis = keyof typeof AXES;
const isAxis = (name: string | null): name is Axis => name !== null && Object.hasOwn(AXES, name);

/** The curves of a step's metrics that everyone wants to see, with the metrics that each has. */
const STEP: { title: string; metrics: [label: string, metric: string][]; hint?: string }[] = [
  { title: 'Entropy', metrics: [['entropy', 'actor/entropy']], hint: 'nats a token' },
  { title: 'KL to the policy before the step', metrics: [['KL', 'actor/ppo_kl']] },
  { title: 'Gap between engine and trainer', metrics: [['KL', 'rollout_corr/kl']], hint: 'nats a token' },
  { title: 'Learning rate', metrics: [['lr', 'actor/lr']] },
  { title: 'Gradient norm', metrics: [['norm', 'actor/grad_norm']] },
];

const PHASES = ['rollout', 'batch', 'train', 'publish'];

type CurvesProps = { runId: string; takes: Take[]; evaluations: Evaluation[] };

/** The curves of a run, and of a second one that the address names. */
function Curves(own: CurvesProps) {
  const [search] = useSearchChange();
  const otherId = search.get('with') ?? '';
  const { value, trouble } = useAnswer<RunNow | null>({
    key: `run ${otherId}`,
    ask: async (client, before, signal) => (otherId === '' ? null : readRunNow(client, otherId, before, signal)),
    isFinal: (now) => now === null || hasEnded(now.run.status),
  });
  const other = useMemo(
    () => value && { runId: otherId, takes: value.takes, evaluations: value.run.evaluations },
    [otherId, value],
  );
  return (
    <>
      {trouble !== null && (
        <p className="trouble" role="status">
          <Recorded text={`${otherId}: ${trouble}`} />
        </p>
      )}
      <Drawn {...own} other={other} otherId={otherId} />
    </>
  );
}

type DrawnProps = CurvesProps & { other: CurvesProps | null; otherId: string };

function Drawn({ runId, takes, evaluations, other, otherId }: DrawnProps) {
  const [search, change] = useSearchChange();
  const asked = search.get('x');
  const axis: Axis = isAxis(asked) ? asked : 'iteration';
  const more = search.getAll('metric');
  const added = more.join('\n');
  const { charts, others } = useMemo(() => {
    const metrics = added === '' ? [] : added.split('\n');
    const mine = chartsOf(takes, evaluations, axis, metrics);
    const theirs = other && chartsOf(other.takes, other.evaluations, axis, metrics);
    return {
      charts: theirs && other ? overlay(mine.charts, theirs.charts, other.runId) : mine.charts,
      others: [...new Set([...mine.names, ...(theirs?.names ?? [])])]
        .filter((name) => !metrics.includes(name) && !STEP.some((each) => each.metrics.some(([, own]) => own === name)))
        .toSorted(),
    };
  }, [takes, evaluations, axis, added, other]);
  return (
    <section aria-label="Curves">
      <div className="line tools">
        <Choice
          label="Draw by"
          names={AXES}
          chosen={axis}
          onChoose={(name) => change((params) => params.set('x', name))}
        />
        <label>
          Add a metric{' '}
          <select value="" onChange={(event) => change((params) => params.append('metric', event.target.value))}>
            <option value="">…</option>
            {others.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        {more.length > 0 && (
          <button type="button" className="quiet" onClick={() => change((params) => params.delete('metric'))}>
            Remove added metrics
          </button>
        )}
        <SecondRun runId={runId} chosen={otherId} />
      </div>
      {charts.length === 0 ? (
        <p className="hint">No iteration has ended yet: curves begin with the first that has.</p>
      ) : (
        <div className="curves">
          {charts.map((chart) => (
            <Curve key={`${chart.title} ${chart.xLabel}`} {...chart} />
          ))}
        </div>
      )}
    </section>
  );
}

/** The most runs that can be chosen from; the address takes any. */
const MOST_RUNS = 200;

/** Chooses a run whose curves are drawn over those of this one. The choice is in the address. */
function SecondRun({ runId, chosen }: { runId: string; chosen: string }) {
  const [, change] = useSearchChange();
  // The list has rewards of each run, so that not each view of a run asks for it.
  const [isAsked, setAsked] = useState(false);
  const { value, trouble } = useAnswer<RunList | null>({
    key: `runs to compare with ${isAsked}`,
    ask: async (client, _before, signal) => (isAsked ? client.runs({ limit: MOST_RUNS }, signal) : null),
    isFinal: () => true,
  });
  const ids = value?.runs.map((run) => run.run_id) ?? [];
  const names = [...new Set([...(chosen === '' ? [] : [chosen]), ...ids])].filter((id) => id !== runId);
  return (
    <label>
      Draw over it{' '}
      <select
        value={chosen}
        onFocus={() => setAsked(true)}
        onChange={(event) =>
          change((params) => {
            if (event.target.value === '') params.delete('with');
            else params.set('with', event.target.value);
          })
        }
      >
        <option value="">no other run</option>
        {names.map((name) => (
          <option key={name} value={name}>
            {visible(name)}
          </option>
        ))}
        {isAsked && value === null && <option disabled>{trouble ?? 'Loading …'}</option>}
      </select>
    </label>
  );
}

/** The values of k for which an evaluation has pass@k, ascending. */
const ksOf = (evaluations: readonly Evaluation[]): number[] =>
  [...new Set(evaluations.flatMap(({ pass_at: shares }) => Object.keys(shares).map(Number)))].toSorted((a, b) => a - b);

/** Draws pass@1, and pass@k of the largest k that the most evaluations have. */
function heldOutOf(evaluations: readonly Evaluation[]): Chart[] {
  const scored = evaluations.filter(({ pass_at: shares }) => shares[1] !== undefined);
  if (scored.length === 0) return [];
  const having = (k: number): number => scored.filter(({ pass_at: shares }) => shares[k] !== undefined).length;
  const most = ksOf(scored)
    .filter((k) => k > 1)
    .toSorted((a, b) => having(b) - having(a) || b - a)
    .slice(0, 1);
  return [
    {
      title: 'Held-out tasks',
      xLabel: 'policy version',
      hint: 'by policy version',
      x: scored.map(({ policy_version: version }) => version),
      lines: [
        ...[1, ...most].map((k) => ({
          label: `pass@${k}`,
          values: scored.map(({ pass_at: shares }) => shares[k] ?? null),
        })),
        { label: 'reward', values: scored.map(({ reward_mean: mean }) => mean) },
      ],
    },
  ];
}

/** Returns the charts of a run, with those of added metrics, and the names of all metrics. Without an ended iteration it has none. */
function chartsOf(
  takes: Take[],
  evaluations: readonly Evaluation[],
  axis: Axis,
  metrics: readonly string[],
): { charts: Chart[]; names: string[] } {
  const drawn = curvesOf(takes, axis);
  if (drawn.x.length === 0) return { charts: [], names: [] };
  const common = { x: drawn.x, xLabel: AXES[axis], isCarried: axis !== 'iteration' };
  return {
    names: drawn.names,
    charts: [
      {
        ...common,
        title: 'Reward',
        lines: drawn.reward,
        band: drawn.band,
        hint: 'mean and median of the trials; the band is the mean ± their standard deviation',
      },
      { ...common, title: 'Pass rate', lines: drawn.passed, hint: 'trials with a reward ≥ 1' },
      ...heldOutOf(evaluations),
      ...drawn.curves.map((curve) => ({ ...common, ...curve })),
      ...metrics.flatMap((name) => {
        const lines = drawn.metric(name);
        return lines ? [{ ...common, title: name, lines }] : [];
      }),
    ],
  };
}

/** Superseded takes are left out, because what they made no longer counts, and the open one, because its first trials to end say little about it. */
function curvesOf(all: Take[], axis: Axis) {
  const takes = all.filter(({ status }) => status === 'done');
  const start = takes[0]?.opened_at ?? 0;
  let trials = 0;
  const x = takes.map((take) => {
    trials += Object.values(take.trials).reduce((sum, each) => sum + each, 0);
    if (axis === 'iteration') return take.iteration;
    return axis === 'trials' ? trials : ((take.ended_at ?? take.opened_at) - start) / 60;
  });
  const line = (label: string, of: (take: Take) => number | null | undefined): Line => ({
    label,
    values: takes.map((take) => of(take) ?? null),
  });
  const has = (lines: Line[]): Line[] => lines.filter(({ values }) => values.some((value) => value !== null));
  const named = (name: string): Line => line(name, ({ metrics, batch_metrics: batch }) => metrics[name] ?? batch[name]);
  const curves = [
    {
      title: 'Length',
      lines: has([line('tokens', ({ batch_metrics: batch }) => batch['used_tokens'])]),
      hint: 'sampled tokens a trial',
    },
    ...STEP.map(({ title, metrics, hint }) => ({
      title,
      hint,
      lines: has(metrics.map(([label, metric]) => line(label, (take) => take.metrics[metric]))),
    })),
    {
      title: 'Staleness',
      hint: 'versions',
      lines: has(
        ['mean', 'max'].map((which) => line(which, ({ batch_metrics: batch }) => batch[`staleness_${which}`])),
      ),
    },
    {
      title: 'Seconds by phase',
      hint: undefined,
      lines: has(PHASES.map((phase) => line(phase, ({ seconds }) => seconds[phase]))),
    },
  ].filter(({ lines }) => lines.length > 0);
  const names = new Set(takes.flatMap((take) => [...Object.keys(take.metrics), ...Object.keys(take.batch_metrics)]));
  return {
    x,
    reward: [line('mean', (take) => take.reward?.mean), line('median', (take) => take.reward?.median)],
    band: {
      low: takes.map(({ reward: own }) => (own ? own.mean - own.std : null)),
      high: takes.map(({ reward: own }) => (own ? own.mean + own.std : null)),
    },
    passed: [line('pass rate', ({ reward: own }) => own && own.passed / own.count)],
    curves,
    names: [...names].toSorted(),
    metric: (name: string): Line[] | null => (names.has(name) ? [named(name)] : null),
  };
}

const numbers = (...names: string[]): Column[] => names.map((name) => ({ name, isNumber: true }));

function Evaluations({ runId, evaluations }: { runId: string; evaluations: Evaluation[] }) {
  const ks = ksOf(evaluations);
  if (evaluations.length === 0) return null;
  return (
    <section>
      <h2>Evaluations on held-out tasks</h2>
      <WideTable
        label="Evaluations"
        columns={[{ name: 'Evaluation' }, ...numbers(...ks.map((k) => `pass@${k}`), 'Reward mean', 'Scored')]}
      >
        {evaluations.map((row) => (
          <tr key={row.id}>
            <th scope="row">
              <Link href={`${runPath(runId)}/evaluations/${encodeURIComponent(row.id)}`}>
                {row.policy_version === 0 ? 'base model' : `policy version ${row.policy_version}`}
              </Link>{' '}
              <span className="hint">{row.id}</span>
            </th>
            {ks.map((k) => (
              <td className="number" key={k}>
                {percent(row.pass_at[k])}
              </td>
            ))}
            <td className="number">{reward(row.reward_mean)}</td>
            <td className="number">
              {row.scored} of {row.trials}
            </td>
          </tr>
        ))}
      </WideTable>
    </section>
  );
}

/** The rows that are shown before someone asks for all. */
const FIRST_ROWS = 30;

function Iterations({ runId, takes }: { runId: string; takes: Take[] }) {
  const [isAll, setAll] = useState(false);
  const rows = takes.toReversed().slice(0, isAll ? undefined : FIRST_ROWS);
  if (takes.length === 0) return null;
  return (
    <section>
      <h2>Iterations</h2>
      <WideTable
        label="Iterations"
        columns={[
          { name: 'Iteration' },
          { name: 'Status' },
          { name: 'Trials' },
          ...numbers('Reward mean', 'Std', 'Pass rate', 'Groups with equal rewards', 'Policy version'),
          ...numbers(...PHASES.map((phase) => `${phase} time`)),
        ]}
      >
        {rows.map((row) => (
          <tr key={`${row.iteration}.${row.take}`} className={row.status === 'superseded' ? 'past' : undefined}>
            <th scope="row">
              <Link href={iterationPath(runId, row.iteration, namedTake(row))}>
                {row.iteration}
                {namedTake(row) !== undefined && ` (take ${row.take})`}
              </Link>{' '}
              <Link className="hint" href={timelinePath(runId, row.iteration, namedTake(row))}>
                timeline<span className="hidden"> of iteration {row.iteration}</span>
              </Link>
            </th>
            <td>
              <Badge word={row.status} />
              {row.skipped !== null && (
                <div className="hint reason">
                  no update: <Recorded text={row.skipped} />
                </div>
              )}
            </td>
            <td>{outcomesOf(row)}</td>
            <td className="number">{reward(row.reward?.mean)}</td>
            <td className="number">{reward(row.reward?.std)}</td>
            <td className="number">{percent(row.reward && row.reward.passed / row.reward.count)}</td>
            <td className="number">
              {row.equal_groups} of {row.groups}
              {row.unrewarded_groups > 0 && <div className="hint">{row.unrewarded_groups} without a reward</div>}
            </td>
            <td className="number">{short(row.policy_version)}</td>
            {PHASES.map((phase) => (
              <td className="number" key={phase}>
                {duration(row.seconds[phase])}
              </td>
            ))}
          </tr>
        ))}
      </WideTable>
      {takes.length > rows.length && (
        <button type="button" onClick={() => setAll(true)}>
          Show all {takes.length}
        </button>
      )}
    </section>
  );
}

/** The take that a link names: it is needed where an iteration may have another one. */
const namedTake = ({ take, status }: Take): number | undefined =>
  take > 1 || status === 'superseded' ? take : undefined;

const outcomesOf = (row: Take): string =>
  Object.entries(row.trials)
    .toSorted(([, a], [, b]) => b - a)
    .map(([outcome, trials]) => `${trials} ${outcome.replaceAll('_', ' ')}`)
    .join(', ') || 'none';
