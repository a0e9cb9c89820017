/**
 * Measures many working copies of a repository that are made at once, in sandboxes as trials have them, beside what one would do by hand in the
 * same run: `git clone` of the repository, and `cp -r` of a clone. The repository is generated: files of text in folders, with commits that
 * each change five files; the copies are of a commit before the last hundred.
 *
 *   node bench/repository-copies.ts --copies 64 --files 5000 --commits 1000
 *
 * Prints a table: seconds until all copies are there, processor seconds of that, bytes on disk of one and of all, seconds of a `git status` in one, and whether one has
 * commits after its own. `--at-once` bounds how many are made at the same time, of all ways.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { keptRepository } from '../activities/repositories/kept-repository.ts';
import { createSandbox } from '../activities/sandbox/create-sandbox.ts';
import { openBackend } from '../activities/sandbox/backends.ts';
import { verify } from '../activities/sandbox/verify.ts';
import { statColumns } from '../core/process-stat.ts';
import { diskUse, sizeOf } from '../cli/disk/disk-use.ts';
import { table } from '../cli/show/table.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { shell, taskWith, temporaryHome } from '../tests/support/harness/sandbox-fixtures.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';
import { generatedHistory } from './repository-copies/generated-history.ts';

const options = optionsOf(import.meta.url, { copies: 64, files: 5000, commits: 1000, 'at-once': 8 });
const signal = shutdownSignal();
const run = promisify(execFile);
const backend = await openBackend();
const here = backend.host;
await using folder = await temporaryHome();
const { home } = folder;

const origin = join(home, 'origin');
await run('git', ['init', '--quiet', '--initial-branch=main', origin]);
const writer = spawn('git', ['-C', origin, 'fast-import', '--quiet'], { stdio: ['pipe', 'inherit', 'inherit'] });
const written = once(writer, 'close');
for (const part of generatedHistory(options))
  if (!writer.stdin.write(part)) await once(writer.stdin, 'drain', { signal });
writer.stdin.end();
await written;
await run('git', ['-C', origin, 'gc', '--quiet']);
const { stdout: found } = await run('git', ['-C', origin, 'rev-parse', `main~${Math.min(100, options.commits - 1)}`]);
const commit = found.trim();

const task = await taskWith(home, 'echo 1 > "$LOGS_DIR/verifier/reward.txt"', {
  'task.toml': `[verifier]\ntimeout_sec = 60\n[trialgate.repository]\nurl = "${origin}"\ncommit = "${commit}"\n`,
});

const report = (line: string): void => console.error(line);

type Made = {
  name: string;
  seconds: number;
  processor: number;
  one: number;
  all: number;
  status: string;
  future: string;
};

/** Returns the processor seconds of this process and of all programs that it waited for. */
function processorSeconds(): number {
  const columns = statColumns(process.pid) ?? [];
  return [11, 12, 13, 14].reduce((sum, column) => sum + Number(columns[column]), 0) / TICKS;
}
/** The kernel's unit of time for programs, on every machine that we know. */
const TICKS = 100;

async function seconds(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return (performance.now() - start) / 1000;
}

/** Makes all copies, at most `--at-once` at the same time. */
async function makeAll(make: (index: number) => Promise<unknown>): Promise<Pick<Made, 'seconds' | 'processor'>> {
  const before = processorSeconds();
  const waiting = Array.from({ length: options.copies }, (_, index) => index);
  const next = async (): Promise<void> => {
    for (let index = waiting.shift(); index !== undefined; index = waiting.shift()) await make(index);
  };
  const took = await seconds(() => Promise.all(Array.from({ length: options['at-once'] }, next)));
  return { seconds: took, processor: processorSeconds() - before };
}

/** Makes copies with programs, one in each folder. */
async function byHand(name: string, argv: (target: string) => string[]): Promise<Made> {
  const place = join(home, name.replaceAll(/\W+/g, '-'));
  await mkdir(place);
  const took = await makeAll(async (index) => {
    const [program = '', ...args] = argv(join(place, String(index)));
    await run(program, args, { signal });
    await run('git', ['-C', join(place, String(index)), 'checkout', '--quiet', commit], { signal });
  });
  const git = (...args: string[]) => run('git', ['-C', join(place, '0'), ...args]);
  const status = await seconds(() => git('status', '--porcelain'));
  const { stdout } = await git('log', '--oneline', `${commit}..origin/main`);
  const all = await diskUse(place);
  await run('rm', ['-rf', place]);
  report(`${name}: ${took.seconds.toFixed(1)} s`);
  return {
    name,
    ...took,
    one: all / options.copies,
    all,
    status: status.toFixed(2),
    future: stdout ? 'yes' : 'no',
  };
}

const filled = await seconds(() => keptRepository(task.repository ?? raise(), { home, signal, report }));
const sandboxes: Awaited<ReturnType<typeof createSandbox>>[] = [];
const took = await makeAll(async (index) => {
  sandboxes.push(await createSandbox({ backend, home, trialId: `copy-${index}`, attempt: 1, task, signal }));
});
const [first] = sandboxes;
if (!first) raise();
report(`working copies: ${took.seconds.toFixed(1)} s`);
const status = await shell(here, first, 'git status --porcelain', { storageMb: 10_000, seconds: 60 });
const { stdout: newest } = await run('git', ['-C', origin, 'rev-parse', 'main']);
const future = await shell(here, first, `git cat-file -e ${newest.trim()}`, { seconds: 60 });
const judged = await seconds(() => verify({ task, sandbox: first, backend, signal }));
const kept = await diskUse(join(home, 'repositories'));
const works = await Promise.all(sandboxes.map(({ work }) => diskUse(work)));
const copied = works.reduce((sum, bytes) => sum + bytes, 0);
await run('rm', ['-rf', join(home, 'sandboxes')]);

const clone = join(home, 'clone');
await run('git', ['clone', '--quiet', '--no-local', origin, clone], { signal });
const made: Made[] = [
  {
    name: 'working copies of tasks',
    ...took,
    one: copied / options.copies,
    all: copied + kept,
    status: status.seconds.toFixed(2),
    future: future.exitCode === 0 ? 'yes' : 'no',
  },
  await byHand('git clone file://', (target) => ['git', 'clone', '--quiet', `file://${origin}`, target]),
  await byHand('git clone (hard links)', (target) => ['git', 'clone', '--quiet', origin, target]),
  await byHand('cp -r of a clone', (target) => ['cp', '-r', clone, target]),
];
console.log(JSON.stringify({ ...provenance(), ...options, isolation: backend.host.kind }, null, 2));
console.log(
  `\n${table(
    ['way', `s for ${options.copies}`, 'processor s', 'one', 'all', 's of git status', 'later commits readable'],
    made.map((each) => [
      each.name,
      each.seconds.toFixed(1),
      each.processor.toFixed(1),
      sizeOf(each.one),
      sizeOf(each.all),
      each.status,
      each.future,
    ]),
  )}`,
);
console.log(
  `\nthe one fetch before: ${filled.toFixed(1)} s, ${sizeOf(kept)} kept for all copies (counted in "all"); to judge one copy: ${judged.toFixed(1)} s`,
);
await folder[Symbol.asyncDispose]();
process.exit(0);

function raise(): never {
  throw new Error('nothing was made');
}
