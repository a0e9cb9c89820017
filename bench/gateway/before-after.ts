/**
 * Measures a change's effect on the gateway's speed and memory. Another commit's gateway and this one's run side by side, in front of one engine and
 * one PostgreSQL, and get short bursts of load in turns. The engine alone shows how steady the machine was.
 *
 *   node bench/gateway/before-after.ts --before COMMIT [--cells calls,streams,first-token,token-in,paced] [--repeats 15] [--seconds 2] [--streams 1300]
 *
 * Prints medians, their ratio, and the processor time of the gateway for a call, which other load on the machine changes least. `first-token` is
 * the time to the first token at 64 streams, `token-in` turns of conversations that continue by ids, and `paced` the peak memory of `--streams` paced
 * streams. Each burst of `paced` has a gateway of its own, because a process keeps the memory of an earlier load: it takes about 25 s a side.
 * Exits with 4 when a reply was lost, or a turn did not continue by ids.
 */
import { REPOSITORY } from '../../core/repository.ts';
import { EXIT } from '../../cli/exit.ts';
import { table } from '../../cli/show/table.ts';
import { shutdownSignal } from '../../cli/signals.ts';
import { TrialgateError } from '../../core/errors.ts';
import { provenance } from '../deployment.ts';
import { optionsOf } from '../options.ts';
import { directTarget, gatewayTarget, rotated, type Bench, type Target } from './cell.ts';
import { checkedOut } from './checked-out.ts';
import { CONCURRENCIES, once, TOKENS } from './cells/calls.ts';
import { firstTokens } from './cells/first-token.ts';
import { pacedStreams, STREAMS, warmUp } from './cells/paced.ts';
import { CONNECTIONS, turns, WARM_SECONDS as TURNS_WARM_SECONDS } from './cells/token-in.ts';
import { installWrk } from './load/wrk-install.ts';
import type { Figures } from './measure.ts';
import { startEngine } from './parts/engine.ts';
import { startGateway, type BenchGateway } from './parts/gateway.ts';
import { startPostgres } from './parts/postgres.ts';
import { median, Report } from './report.ts';

const WARM_SECONDS = 4;
const CELLS = ['calls', 'streams', 'first-token', 'token-in', 'paced'] as const;
const PROTOCOL = 'chat_completions';

const options = optionsOf(import.meta.url, {
  before: null,
  cells: CELLS.join(','),
  repeats: 15,
  seconds: 2,
  streams: STREAMS,
});
if (options.before === null)
  throw new TrialgateError('bad_input', '--before: name the commit to compare with; see --help');
const cells = options.cells.split(',').map((name) => {
  const cell = CELLS.find((each) => each === name);
  if (cell === undefined)
    throw new TrialgateError('bad_input', `--cells: there is no cell ${name}: ${CELLS.join(', ')}`);
  return cell;
});

type Side = 'before' | 'after';
type Figure = { key: string; title: string; digits: number };
/** A kind of load. `compared` is the figure whose ratio is printed; `more` are the gateways' other figures. */
type Load = {
  name: string;
  compared: Figure;
  more: readonly Figure[];
  warm: (target: Target) => Promise<unknown>;
  burst: (target: Target) => Promise<Figures>;
  /** True when each burst needs a gateway that has had no other load. */
  isAlone?: true;
};

const signal = shutdownSignal();
const found: { load: Load; side: string; figures: Figures }[] = [];
await using stack = new AsyncDisposableStack();
const { path: earlier } = stack.use(checkedOut(options.before));
const postgres = stack.use(await startPostgres(signal));
const engine = stack.use(await startEngine(signal));
const start = (side: Side): Promise<BenchGateway> =>
  startGateway({ postgres, engine: engine.url, repository: side === 'before' ? earlier : REPOSITORY, signal });
const bench: Bench = {
  options: { ...options, peers: false },
  engine,
  postgres,
  wrk: await installWrk(signal),
  report: new Report((text) => console.error(text)),
  windows: [],
  startGateway: () => start('after'),
  startPeers: async () => [],
  signal,
};

const RATE: Pick<Load, 'compared' | 'more'> = {
  compared: { key: 'perSecond', title: 'a second', digits: 0 },
  more: [
    { key: 'p99Ms', title: 'p99 ms', digits: 2 },
    { key: 'ownMicros', title: 'own µs a call', digits: 0 },
    { key: 'postgresMicros', title: "PostgreSQL's", digits: 0 },
  ],
};
const isAsked = (cell: (typeof CELLS)[number]): boolean => cells.includes(cell);
const loads: Load[] = [
  ...[false, true].flatMap((stream) => {
    const cell = stream ? 'streams' : 'calls';
    return isAsked(cell) ? CONCURRENCIES.map((connections) => plain(cell, stream, connections)) : [];
  }),
  ...(isAsked('token-in') ? [false, true].map(tokenIn) : []),
  ...(isAsked('first-token') ? [firstToken()] : []),
  ...(isAsked('paced') ? [paced()] : []),
];

function plain(cell: string, stream: boolean, connections: number): Load {
  const run = async (target: Target, seconds: number): Promise<Figures> => {
    await engine.set({ tokens: TOKENS, paceMs: 0 });
    return once(bench, target, { stream, connections, seconds });
  };
  return {
    name: `${cell} c=${connections}`,
    ...RATE,
    warm: (target) => run(target, WARM_SECONDS),
    burst: (target) => run(target, options.seconds),
  };
}

function tokenIn(stream: boolean): Load {
  const run = (target: Target, seconds: number) => turns(bench, { target, protocol: PROTOCOL }, stream, seconds);
  return {
    name: `token-in ${stream ? 'streams' : 'calls'} c=${CONNECTIONS}`,
    ...RATE,
    warm: (target) => run(target, TURNS_WARM_SECONDS),
    burst: (target) => run(target, options.seconds),
  };
}

function firstToken(): Load {
  return {
    name: 'first token at 64 streams',
    compared: { key: 'firstP99Ms', title: 'p99 ms', digits: 2 },
    more: [
      { key: 'firstP50Ms', title: 'p50 ms', digits: 2 },
      { key: 'ownCores', title: 'own cores', digits: 2 },
    ],
    // Its streams warm the gateway themselves before they are timed.
    warm: () => Promise.resolve(),
    burst: (target) => firstTokens(bench, { target, protocol: PROTOCOL }, options.seconds),
  };
}

function paced(): Load {
  return {
    name: `${options.streams} paced streams`,
    compared: { key: 'peakMiB', title: 'peak MiB', digits: 0 },
    more: [
      { key: 'delayP99Ms', title: "a token's delay, p99 ms", digits: 2 },
      { key: 'ownCores', title: 'own cores', digits: 2 },
      { key: 'timeouts', title: 'timeouts', digits: 0 },
    ],
    warm: (target) => warmUp(bench, target, PROTOCOL),
    burst: (target) => pacedStreams(bench, target, PROTOCOL, options.streams),
    isAlone: true,
  };
}

const named = (side: Side, gateway: BenchGateway): Target => ({ ...gatewayTarget(gateway), name: side });
const SIDES: readonly Side[] = ['before', 'after'];
const shared = loads.filter(({ isAlone }) => !isAlone);
const targets: Target[] = [];
if (shared.length > 0) {
  for (const side of SIDES) targets.push(named(side, stack.use(await start(side))));
  targets.push(directTarget(engine));
}
for (const load of shared) for (const target of targets) await load.warm(target);
for (let repeat = 1; repeat <= options.repeats; repeat++) {
  for (const load of loads) {
    if (load.isAlone) {
      for (const side of rotated(SIDES, repeat)) {
        await using gateway = await start(side);
        const target = named(side, gateway);
        await load.warm(target);
        found.push({ load, side, figures: await load.burst(target) });
      }
    } else {
      for (const target of rotated(targets, repeat))
        found.push({ load, side: target.name, figures: await load.burst(target) });
    }
  }
  console.error(`${repeat} of ${options.repeats}`);
}
console.log(JSON.stringify({ ...provenance(), before: options.before }, null, 2));
for (const [, alike] of Map.groupBy(loads, ({ compared: { key } }) => key)) console.log(`\n${comparison(alike)}`);
console.log(
  `\nMedians of ${options.repeats}. ±: half the distance between the quartiles of the ratios of neighboring bursts. Faults: errors, replies that were lost, and turns that did not continue by ids.`,
);
if (found.some(({ figures }) => wrongOf(figures) > 0)) process.exitCode = EXIT.failed;

function wrongOf({ lost = 0, unclean = 0 }: Figures): number {
  return lost + unclean;
}

/** Compares loads with the same figures. */
function comparison(alike: readonly Load[]): string {
  const [first] = alike;
  if (first === undefined) return '';
  const lines = alike.map((load) => {
    const its = (side: string): Figures[] =>
      found.filter((each) => each.load === load && each.side === side).map(({ figures }) => figures);
    const all = (side: string, { key }: Figure): number[] => its(side).map((figures) => figures[key] ?? Number.NaN);
    const shown = (side: string, figure: Figure): string => {
      const values = all(side, figure).filter((value) => !Number.isNaN(value));
      return values.length === 0 ? '–' : median(values).toFixed(figure.digits);
    };
    const before = all('before', load.compared);
    const ratios = all('after', load.compared)
      .map((value, i) => value / (before[i] ?? Number.NaN))
      .toSorted((a, b) => a - b);
    const quartile = (part: number): number => ratios[Math.round(part * (ratios.length - 1))] ?? Number.NaN;
    return [
      load.name,
      ...['direct', ...SIDES].map((side) => shown(side, load.compared)),
      `${median(ratios).toFixed(3)} ± ${((quartile(0.75) - quartile(0.25)) / 2).toFixed(3)}`,
      ...load.more.flatMap((figure) => SIDES.map((side) => shown(side, figure))),
      ...SIDES.map(
        (side) => `${its(side).reduce((sum, figures) => sum + (figures.errors ?? 0) + wrongOf(figures), 0)}`,
      ),
    ];
  });
  const titles = [...first.more.map(({ title }) => title), 'faults'];
  return table(
    [
      '',
      `direct ${first.compared.title}`,
      'before',
      'after',
      'after / before',
      ...titles.flatMap((title) => [`${title}, before`, 'after']),
    ],
    lines,
  );
}
