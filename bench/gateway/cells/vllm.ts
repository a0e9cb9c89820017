import { rotated, protocolTargets, type Bench, type Cell, type ProtocolTarget } from '../cell.ts';
import { nextTurn, openPool, type Talk } from '../load/converse.ts';
import { compared, measured, type Figures } from '../measure.ts';
import { startVllm } from '../parts/vllm.ts';
import { FAULT_COLUMNS } from '../measure-wrk.ts';
import type { Column } from '../report.ts';
import { PROTOCOL_NAMES } from '../../../store/schema.ts';

const TOKENS = 32;
const TALKS = 32;
const TURNS = 2;

const COLUMNS: Column[] = [
  { key: 'tokensPerSecond', title: 'tokens/s', digits: 1, spread: true },
  { key: 'ofDirect', title: 'of direct', digits: 3, spread: true },
  { key: 'ownCores', title: 'own cores', digits: 3 },
  { key: 'postgresCores', title: 'postgres', digits: 3 },
  { key: 'engineCores', title: 'engine', digits: 2 },
  { key: 'otherCores', title: 'others', digits: 2 },
  { key: 'peakMiB', title: 'peak MiB' },
  { key: 'unclean', title: 'not by ids', sum: true },
  ...FAULT_COLUMNS.filter(({ key }) => key !== 'errors'),
];

type Shape = { continues: boolean; stream: boolean };
const SHAPES: Shape[] = [false, true].flatMap((continues) => [false, true].map((stream) => ({ continues, stream })));

/** Gives engine and gateway the same work: simultaneous conversations with equal numbers of turns and tokens. */
export const vllm: Cell = {
  name: 'vllm',
  about: `a real engine, ${TALKS} at once, ${TURNS} turns of ${TOKENS} tokens each: first turns by its chat route (ordinary), or later ones by ids (token-in)`,
  async run(bench) {
    await using engine = await startVllm(bench.signal);
    const onVllm: Bench = { ...bench, engine };
    await using gateway = await bench.startGateway({ engine: engine.url });
    // Gemini has no field for `ignore_eos`, which gives all replies the same length.
    const asked = PROTOCOL_NAMES.filter((protocol) => protocol !== 'gemini');
    const inProtocols = protocolTargets(onVllm, gateway, asked);
    for (const each of inProtocols) await talk(onVllm, each, { continues: true, stream: true });
    for (let repeat = 1; repeat <= bench.options.repeats; repeat++) {
      for (const shape of SHAPES) {
        const found = new Map<string, Figures>();
        for (const each of rotated(inProtocols, repeat)) found.set(each.target.name, await talk(onVllm, each, shape));
        const direct = found.get('direct')?.tokensPerSecond ?? 0;
        const what = `${shape.continues ? 'token-in' : 'ordinary'} ${shape.stream ? 'streams' : 'calls'}`;
        for (const [target, figures] of found) {
          const share = target === 'direct' ? {} : { ofDirect: (figures.tokensPerSecond ?? 0) / direct };
          bench.report.add({ cell: vllm.name, case: what, target, repeat, figures: { ...figures, ...share } }, [
            'tokensPerSecond',
            'ofDirect',
            'lost',
            'unclean',
          ]);
        }
      }
    }
    bench.report.summarize(vllm.name, vllm.about, COLUMNS);
  },
};

async function talk(
  bench: Bench,
  { target, protocol }: ProtocolTarget,
  { continues, stream }: Shape,
): Promise<Figures> {
  const pool = openPool(target.url, TALKS);
  const asked = { protocol, stream, tokens: TOKENS, signal: bench.signal };
  try {
    const talksOf = async (count: number): Promise<Talk[]> =>
      (await target.lines(count)).map((line) => ({ line, messages: '', turns: 0 }));
    const talks = await talksOf(continues ? TALKS : TALKS * TURNS);
    if (continues) await Promise.all(talks.map((each) => nextTurn(pool, target, each, asked)));
    let tokens = 0;
    const figures = await measured(bench, target, async () => {
      const start = performance.now();
      await Promise.all(
        Array.from({ length: TALKS }, async (_, lane) => {
          // The turns continue one conversation, or each begins a new one.
          for (let turn = 0; turn < TURNS; turn++) {
            const each = talks[continues ? lane : lane * TURNS + turn];
            if (!each) continue;
            const came = await nextTurn(pool, target, each, asked);
            tokens += came;
          }
        }),
      );
      return { tokens, tokensPerSecond: (tokens * 1000) / (performance.now() - start) };
    });
    const { completed, clean } = figures;
    const unclean = continues && completed !== undefined && clean !== undefined ? { unclean: completed - clean } : {};
    return compared({ ...figures, ...unclean }, TALKS * TURNS);
  } finally {
    await pool.destroy();
  }
}
