/**
 * Measures a change's effect on the gateway's speed: another commit's gateway and this one's take turns on the same machine.
 * Each turn is `bench/gateway/main.ts --cells calls,streams --repeats 1` of that commit. Prints medians and their ratio.
 *
 *   node bench/gateway/before-after.ts --before COMMIT [--repeats 5] [--seconds 3]
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, symlinkSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { REPOSITORY } from '../../cli/folders.ts';
import { table } from '../../cli/show/table.ts';
import { TrialgateError } from '../../store/errors.ts';
import { provenance } from '../deployment.ts';
import { optionsOf } from '../options.ts';
import { median, type Row } from './report.ts';

const CELLS = 'calls,streams';
const RESULT = 'bench/results/gateway-calls-streams.json';

const options = optionsOf(import.meta.url, { before: null, repeats: 5, seconds: 3 });
if (options.before === null) throw new TrialgateError('bad_input', '--before: name the commit to compare with; see --help');

type Side = 'before' | 'after';
const folder = await mkdtemp(join(tmpdir(), 'trialgate-before-'));
const trees: Record<Side, string> = { before: join(folder, 'before'), after: join(folder, 'after') };
const rows: (Row & { side: Side })[] = [];
try {
  checkOut(trees.before, options.before);
  checkOut(trees.after, 'HEAD');
  for (let repeat = 1; repeat <= options.repeats; repeat++) {
    // The order changes because the first one in a turn has the colder machine.
    const turn: Side[] = repeat % 2 === 1 ? ['before', 'after'] : ['after', 'before'];
    for (const side of turn) rows.push(...measure(trees[side]).map((row) => ({ ...row, repeat, side })));
    console.error(`${repeat} of ${options.repeats} turns`);
  }
} finally {
  for (const tree of Object.values(trees)) execFileSync('git', ['-C', REPOSITORY, 'worktree', 'remove', '--force', tree], { stdio: 'ignore' });
  await rm(folder, { recursive: true, force: true });
}
console.log(JSON.stringify({ ...provenance(), before: options.before }, null, 2));
console.log(`\n${comparison()}\n\ntrialgate: through the gateway. direct: the engine alone, as a measure of how steady the machine was.`);

function checkOut(tree: string, commit: string): void {
  execFileSync('git', ['-C', REPOSITORY, 'worktree', 'add', '--quiet', '--detach', tree, commit]);
  execFileSync('npm', ['ci', '--no-audit', '--no-fund'], { cwd: tree, stdio: 'ignore' });
  symlinkSync(join(REPOSITORY, '.trialgate'), join(tree, '.trialgate'));
}

function measure(tree: string): Row[] {
  const node = join(tree, 'node_modules/.bin/node');
  const asked = ['bench/gateway/main.ts', '--cells', CELLS, '--repeats', '1', '--seconds', String(options.seconds)];
  execFileSync(node, asked, { cwd: tree, stdio: ['ignore', 'ignore', 'inherit'] });
  const { rows: measured } = JSON.parse(readFileSync(join(tree, RESULT), 'utf8')) as { rows: Row[] };
  return measured;
}

function comparison(): string {
  const groups = Map.groupBy(rows, ({ cell, case: each, target }) => `${cell} ${each} ${target}`);
  const lines = [...groups].flatMap(([name, its]) => {
    const of = (side: Side, key: string): number => median(its.filter((row) => row.side === side).map(({ figures }) => figures[key] ?? Number.NaN));
    if (!/trialgate|direct/.test(name)) return [];
    const [before, after] = [of('before', 'perSecond'), of('after', 'perSecond')];
    return [[name, before.toFixed(0), after.toFixed(0), (after / before).toFixed(3), of('before', 'p99Ms').toFixed(2), of('after', 'p99Ms').toFixed(2)]];
  });
  return table(['', 'a second, before', 'after', 'ratio', 'p99 ms, before', 'after'], lines);
}
