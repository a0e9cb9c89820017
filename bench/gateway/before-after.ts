/**
 * Measures a change's effect on the gateway's speed. Another commit's gateway and this one's run side by side, in front of one engine and
 * one PostgreSQL, and get short bursts of load in turns. The engine alone shows how steady the machine was.
 *
 *   node bench/gateway/before-after.ts --before COMMIT [--repeats 15] [--seconds 2]
 *
 * Prints medians, their ratio, and the processor time of the gateway for a call, which other load on the machine changes least.
 */
import { REPOSITORY } from '../../core/repository.ts';
import { table } from '../../cli/show/table.ts';
import { shutdownSignal } from '../../cli/signals.ts';
import { TrialgateError } from '../../core/errors.ts';
import { provenance } from '../deployment.ts';
import { optionsOf } from '../options.ts';
import { directTarget, gatewayTarget, rotated, type Bench, type Target } from './cell.ts';
import { checkedOut } from './checked-out.ts';
import { CONCURRENCIES, once, TOKENS } from './cells/calls.ts';
import { installWrk } from './load/wrk-install.ts';
import type { Figures } from './measure.ts';
import { startEngine } from './parts/engine.ts';
import { startGateway } from './parts/gateway.ts';
import { startPostgres } from './parts/postgres.ts';
import { median, Report } from './report.ts';

const WARM_SECONDS = 4;

const options = optionsOf(import.meta.url, { before: null, repeats: 15, seconds: 2 });
if (options.before === null)
  throw new TrialgateError('bad_input', '--before: name the commit to compare with; see --help');

const signal = shutdownSignal();
const found: { shape: string; side: string; figures: Figures }[] = [];
await using stack = new AsyncDisposableStack();
const { path: earlier } = stack.use(checkedOut(options.before));
const postgres = stack.use(await startPostgres(signal));
const engine = stack.use(await startEngine(signal));
await engine.set({ tokens: TOKENS, paceMs: 0 });
const start = (repository: string) => startGateway({ postgres, engine: engine.url, repository, signal });
const bench: Bench = {
  options: { ...options, peers: false },
  engine,
  postgres,
  wrk: await installWrk(signal),
  report: new Report(() => {}),
  windows: [],
  startGateway: () => start(REPOSITORY),
  startPeers: async () => [],
  signal,
};
const targets: Target[] = [
  { ...gatewayTarget(stack.use(await start(earlier))), name: 'before' },
  { ...gatewayTarget(stack.use(await start(REPOSITORY))), name: 'after' },
  directTarget(engine),
];
const shapes = [false, true].flatMap((stream) => CONCURRENCIES.map((connections) => ({ stream, connections })));
for (const shape of shapes)
  for (const target of targets) await once(bench, target, { ...shape, seconds: WARM_SECONDS });
for (let repeat = 1; repeat <= options.repeats; repeat++) {
  for (const shape of shapes) {
    for (const target of rotated(targets, repeat)) {
      const figures = await once(bench, target, { ...shape, seconds: options.seconds });
      found.push({
        shape: `${shape.stream ? 'streams' : 'calls'} c=${shape.connections}`,
        side: target.name,
        figures,
      });
    }
  }
  console.error(`${repeat} of ${options.repeats}`);
}
console.log(JSON.stringify({ ...provenance(), before: options.before }, null, 2));
console.log(
  `\n${comparison()}\n\nMedians of ${options.repeats}. ±: half the distance between the quartiles of the ratios of neighboring bursts.`,
);

function comparison(): string {
  const lines = [...Map.groupBy(found, ({ shape }) => shape)].map(([shape, its]) => {
    const all = (side: string, key: string): number[] =>
      its.filter((each) => each.side === side).map(({ figures }) => figures[key] ?? Number.NaN);
    const of = (side: string, key: string): number => median(all(side, key));
    const before = all('before', 'perSecond');
    const ratios = all('after', 'perSecond')
      .map((rate, i) => rate / (before[i] ?? Number.NaN))
      .toSorted((a, b) => a - b);
    const quartile = (part: number): number => ratios[Math.round(part * (ratios.length - 1))] ?? Number.NaN;
    return [
      shape,
      ...['direct', 'before', 'after'].map((side) => of(side, 'perSecond').toFixed(0)),
      `${median(ratios).toFixed(3)} ± ${((quartile(0.75) - quartile(0.25)) / 2).toFixed(3)}`,
      ...['before', 'after'].map((side) => of(side, 'p99Ms').toFixed(2)),
      ...['before', 'after'].map((side) => of(side, 'ownMicros').toFixed(0)),
      ...['before', 'after'].map((side) => of(side, 'postgresMicros').toFixed(0)),
    ];
  });
  return table(
    [
      '',
      'direct a second',
      'before',
      'after',
      'after / before',
      'p99 ms, before',
      'after',
      'own µs a call, before',
      'after',
      "PostgreSQL's, before",
      'after',
    ],
    lines,
  );
}
