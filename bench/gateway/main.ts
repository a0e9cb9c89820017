/** Measures what the gateway costs. See --help. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { EXIT, report as reportFailure } from '../../cli/exit.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { shutdownSignal } from '../../cli/signals.ts';
import { TrialgateError } from '../../core/errors.ts';
import { provenance } from '../deployment.ts';
import type { Bench, Cell } from './cell.ts';
import { calls, streams } from './cells/calls.ts';
import { firstToken } from './cells/first-token.ts';
import { growthTokens } from './cells/growth-tokens.ts';
import { growthTrials } from './cells/growth-trials.ts';
import { growthTurns } from './cells/growth-turns.ts';
import { paced } from './cells/paced.ts';
import { processes } from './cells/processes.ts';
import { protocols } from './cells/protocols.ts';
import { rate } from './cells/rate.ts';
import { tokenIn } from './cells/token-in.ts';
import { vllm } from './cells/vllm.ts';
import { installWrk } from './load/wrk-install.ts';
import { startPeers } from './peers/start.ts';
import { startEngine } from './parts/engine.ts';
import { measureSync } from './parts/fsync.ts';
import { startGateway } from './parts/gateway.ts';
import { startPostgres } from './parts/postgres.ts';
import { selfTimes } from './profile.ts';
import { Report } from './report.ts';

const CELLS: Cell[] = [
  calls,
  streams,
  processes,
  protocols,
  tokenIn,
  firstToken,
  paced,
  rate,
  growthTurns,
  growthTrials,
  growthTokens,
  vllm,
];

const HELP = `What the gateway costs: it, a fake engine and PostgreSQL (fsync on) are processes of their own on this machine.
Each cell also measures the engine alone, in the same repeat.

  node bench/gateway/main.ts [--cells a,b] [--seconds 5] [--repeats 3] [--peers] [--vllm] [--profile]

  --cells    which to measure (growth: all that begin so), by default all:
${CELLS.map(({ name, about }) => `               ${name.padEnd(14)} ${about}`).join('\n')}
  --seconds  how long each measurement lasts
  --repeats  how often each is made: tables show medians, "± %" is (largest - smallest) / median
  --peers    also vllm-router, LiteLLM and Portkey, in the cells calls and streams; installed into .trialgate/peers
  --vllm     also the cell vllm: a real engine, which takes a minute to start
  --profile  after each cell the functions in which the gateway spent most of its time; its figures are slower

Results go to bench/results/gateway.txt and gateway.json, those of some cells to gateway-CELLS, of a profile to gateway-profile. It exits with 4 when a reply
was lost. In tables: own = the target's own processes, others = what else used this machine's processors meanwhile, lost =
replies that a client saw end and that are not recorded (must be 0), unseen = recorded replies whose client was cut off before
their end (wrk's last ones), less a sync = without one fdatasync of this disk.`;

function optionsOf() {
  const { values } = parseArgs({
    options: {
      cells: { type: 'string' },
      seconds: { type: 'string', default: '5' },
      repeats: { type: 'string', default: '3' },
      peers: { type: 'boolean', default: false },
      vllm: { type: 'boolean', default: false },
      profile: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false, short: 'h' },
    },
  });
  const [seconds, repeats] = [values.seconds, values.repeats].map(Number) as [number, number];
  if (![seconds, repeats].every((each) => Number.isInteger(each) && each >= 1))
    throw new TrialgateError('bad_input', '--seconds and --repeats are whole numbers from 1');
  const asked =
    values.cells?.split(',') ?? CELLS.map(({ name }) => name).filter((name) => name !== 'vllm' || values.vllm);
  const cells = asked.map((name) => {
    const named = CELLS.filter((each) => each.name === name || each.name.startsWith(`${name}-`));
    if (named.length === 0)
      throw new TrialgateError('bad_input', `there is no cell ${name}: ${CELLS.map((each) => each.name).join(', ')}`);
    return named;
  });
  // Partial or profiled results have their own file and do not replace the complete ones.
  const name = ['gateway', ...(values.cells?.split(',') ?? []), ...(values.profile ? ['profile'] : [])].join('-');
  return { ...values, seconds, repeats, cells: cells.flat(), name };
}

async function main(): Promise<void> {
  const options = optionsOf();
  if (options.help) return console.log(HELP);
  provenance();
  const signal = shutdownSignal();
  const report = new Report((text) => console.log(text));
  await using stack = new AsyncDisposableStack();
  const wrk = await installWrk(signal);
  const postgres = stack.use(await startPostgres(signal));
  const engine = stack.use(await startEngine(signal));
  const sync = measureSync(postgres.data, 2);
  report.print(
    `this disk makes 8 kB durable (fdatasync) in ${sync.medianMs.toFixed(2)} ms, p99 ${sync.p99Ms.toFixed(2)} ms, of ${sync.count}${sync.isMemory ? '; it is memory, not a disk' : ''}`,
  );
  const profiles: string[] = [];
  const bench: Bench = {
    options,
    engine,
    postgres,
    wrk,
    report,
    windows: [],
    signal,
    startGateway: (asked) =>
      startGateway({
        postgres,
        engine: engine.url,
        ...asked,
        signal,
        ...(options.profile ? { profileTo: (profile) => profiles.push(profile) } : {}),
      }),
    startPeers: async (stream) => (options.peers ? startPeers(engine.url, stream, report, signal) : []),
  };
  for (const cell of options.cells) {
    await cell.run(bench);
    for (const [i, profile] of profiles.splice(0).entries())
      report.print(`\n${cell.name}, gateway ${i + 1}: ${selfTimes(profile, bench.windows)}`);
    keep(options.name, report, sync);
  }
  const wrong = report.rows.filter(({ figures }) => (figures.lost ?? 0) > 0 || (figures.untrainable ?? 0) > 0);
  if (wrong.length === 0) return;
  console.error(
    `error: replies that clients saw end are not recorded, or not as trainable, in ${[...new Set(wrong.map((row) => `${row.cell} ${row.case}`))].join(', ')}`,
  );
  process.exitCode = EXIT.failed;
}

function keep(name: string, report: Report, sync: object): void {
  const results = join(REPOSITORY, 'bench/results');
  mkdirSync(results, { recursive: true });
  const from = provenance();
  writeFileSync(join(results, `${name}.txt`), `${JSON.stringify(from, null, 2)}\n\n${report.text}\n`);
  writeFileSync(join(results, `${name}.json`), `${JSON.stringify({ ...from, sync, rows: report.rows }, null, 1)}\n`);
}

try {
  await main();
} catch (error) {
  process.exitCode = reportFailure(error);
}
