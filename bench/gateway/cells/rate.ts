import { protocolTargets, type Bench, type Cell, type ProtocolTarget } from '../cell.ts';
import type { Figures } from '../measure.ts';
import type { Column } from '../report.ts';
import { STREAM_COLUMNS, timedStreams, TOKENS } from './paced.ts';
import { PROTOCOL_NAMES, type ProtocolName } from '../../../store/schema.ts';

const STREAMS = 256;
const SLOWEST = 2000;
const FASTER = 1.25;
const FASTEST = 80_000;
/** A rate holds when this share of it arrives and tokens are not later than the limit. */
const KEPT = 0.95;
const LATE_MS = 100;

const SHOWN = ['asked', 'tokensPerSecond', 'delayP50Ms', 'delayP99Ms', 'ownCores', 'errors', 'lost'];
const COLUMNS: Column[] = [{ key: 'asked', title: 'asked/s', spread: true }, ...STREAM_COLUMNS];

/** Raises the pace until tokens are late or streams are lost. Measures the engine alone at the last rate that held. */
export const rate: Cell = {
  name: 'rate',
  about: `the highest rate of tokens, each written alone, in ${STREAMS} streams: ${100 * KEPT} % of it come, none lost, with a delay of at most ${LATE_MS} ms at p99`,
  async run(bench) {
    for (let repeat = 1; repeat <= bench.options.repeats; repeat++)
      for (const protocol of PROTOCOL_NAMES) await raise(bench, protocol, repeat);
    bench.report.summarize(rate.name, rate.about, COLUMNS, (row) => !row.case.endsWith('below'));
  },
};

async function raise(bench: Bench, protocol: ProtocolName, repeat: number): Promise<void> {
  await using gateway = await bench.startGateway();
  const [direct, inProtocols] = protocolTargets(bench, gateway, [protocol]);
  if (!direct || !inProtocols) return;
  const add = (what: string, target: string, figures: Figures) =>
    bench.report.add({ cell: rate.name, case: `${protocol} ${what}`, target, repeat, figures }, SHOWN);
  let held: Figures | null = null;
  for (let asked = SLOWEST; asked <= FASTEST; asked *= FASTER) {
    const figures = await at(bench, inProtocols, asked);
    const holds =
      figures.errors === 0 &&
      figures.lost === 0 &&
      (figures.delayP99Ms ?? 0) <= LATE_MS &&
      (figures.tokensPerSecond ?? 0) >= KEPT * asked;
    if (holds && held) add('below', 'trialgate', held);
    if (!holds) add('missed', 'trialgate', figures);
    if (!holds) break;
    held = figures;
  }
  if (!held) return;
  add('held', 'trialgate', held);
  add('held', 'direct', await at(bench, direct, held.asked ?? SLOWEST));
}

async function at(bench: Bench, { target, protocol }: ProtocolTarget, asked: number): Promise<Figures> {
  const paceMs = (STREAMS * 1000) / asked;
  await bench.engine.set({ tokens: TOKENS, paceMs });
  const length = TOKENS * paceMs;
  const job = {
    protocol,
    streams: STREAMS,
    tokens: TOKENS,
    spreadMs: length,
    warmMs: length + 500,
    forMs: length + 500 + 1000 * bench.options.seconds,
  };
  return { ...(await timedStreams(bench, target, job, 4)), asked };
}
