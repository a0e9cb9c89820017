import { Pool } from 'undici';
import { protocolTargets, type Bench, type Cell, type ProtocolTarget, type Target } from '../cell.ts';
import { body, conversation, FORMS, pathOf } from '../load/bodies.ts';
import { post } from '../load/prime.ts';
import type { Figures } from '../measure.ts';
import { withAdded } from '../measure-wrk.ts';
import { cpuSeconds, residentMiB } from '../parts/usage.ts';
import { median, type Column } from '../report.ts';
import { PROTOCOL_NAMES } from '../../../store/schema.ts';

const TOKENS = 64;
const TRIALS = 4;
const WARM_TRIALS = 20;
const WARM_TURNS = 10;
/** The turns that are measured, and the number of turns before each that are measured together. */
const MARKS = [10, 50, 100, 200];
const WIDTH = 10;

const COLUMNS: Column[] = [
  { key: 'p50Ms', title: 'p50 ms', digits: 2, spread: true },
  { key: 'addedP50Ms', title: 'added p50', digits: 2 },
  { key: 'ownMicros', title: 'own µs/call' },
  { key: 'bodyKiB', title: 'request KiB', digits: 1 },
  { key: 'residentMiB', title: 'resident MiB' },
  { key: 'storedKiB', title: 'stored KiB/call', digits: 1 },
  { key: 'unclean', title: 'not by ids', sum: true },
];

/** Measures long conversations, one call at a time. */
export const growthTurns: Cell = {
  name: 'growth-turns',
  about: `${TRIALS} trials of ${MARKS.at(-1)} turns, each continued by ids, c=1: the ${WIDTH} turns up to a mark, and what is stored a call by then`,
  async run(bench) {
    await bench.engine.set({ tokens: TOKENS, paceMs: 0 });
    for (let repeat = 1; repeat <= bench.options.repeats; repeat++) {
      for (const protocol of PROTOCOL_NAMES) {
        await using gateway = await bench.startGateway();
        const found = new Map<string, Map<number, Figures>>();
        for (const each of protocolTargets(bench, gateway, [protocol]))
          found.set(each.target.name, await converse(bench, each));
        for (const mark of MARKS) {
          const figures = new Map([...found].map(([name, marks]) => [name, marks.get(mark) ?? {}]));
          for (const [target, each] of withAdded(figures))
            bench.report.add(
              { cell: growthTurns.name, case: `turn ${mark}, ${protocol}`, target, repeat, figures: each },
              ['p50Ms', 'residentMiB', 'storedKiB', 'unclean'],
            );
        }
      }
    }
    bench.report.summarize(growthTurns.name, growthTurns.about, COLUMNS);
  },
};

async function converse(bench: Bench, { target, protocol }: ProtocolTarget): Promise<Map<number, Figures>> {
  const pool = new Pool(target.url, { connections: 1 });
  const form = FORMS[protocol];
  const makeTurn = (line: Parameters<typeof post>[1], turn: number) => {
    const text = body(
      conversation(line.name, turn, TOKENS, form),
      { stream: false, tokens: TOKENS, direct: target.direct },
      form,
    );
    return post(pool, { ...line, path: pathOf(line.path, form, false) }, text, bench.signal).then((ms) => ({
      ms,
      bytes: text.length,
    }));
  };
  try {
    for (const line of await target.lines(WARM_TRIALS))
      for (let turn = 1; turn <= WARM_TURNS; turn++) await makeTurn(line, turn);
    const lines = await target.lines(TRIALS);
    const [before, rows] = [await target.gateway?.stored(), await target.gateway?.recorded()];
    const marks = new Map<number, Figures>();
    let times: number[] = [];
    let cpu = 0;
    for (let turn = 1; turn <= (MARKS.at(-1) ?? 0); turn++) {
      const mark = MARKS.find((each) => turn <= each && turn > each - WIDTH);
      if (mark !== undefined && turn === mark - WIDTH + 1) {
        times = [];
        cpu = ownCpu(target);
      }
      let bytes = 0;
      for (const line of lines) {
        const result = await makeTurn(line, turn);
        times.push(result.ms);
        bytes = result.bytes;
      }
      if (turn !== mark) continue;
      const own =
        target.pid === null
          ? {}
          : { ownMicros: ((ownCpu(target) - cpu) * 1e6) / times.length, residentMiB: residentMiB(target.pid) };
      const stored =
        target.gateway && before !== undefined
          ? { storedKiB: ((await target.gateway.stored()) - before) / 1024 / (turn * TRIALS) }
          : {};
      const now = await target.gateway?.recorded();
      const unclean =
        rows && now ? { unclean: now.completed - now.clean - (rows.completed - rows.clean) - TRIALS } : {};
      marks.set(turn, { p50Ms: median(times), bodyKiB: bytes / 1024, ...own, ...stored, ...unclean });
    }
    return marks;
  } finally {
    await pool.destroy();
  }
}

const ownCpu = ({ pid }: Target): number => (pid === null ? 0 : cpuSeconds([pid]));
