/**
 * Compares the shape of the gateway's code with that of another commit: its files, folders that depend on one another in a circle, files
 * that name vLLM, and the files that a plain call passes (those of which a function runs during one call, from V8's coverage).
 *
 *   node bench/gateway/shape.ts --before COMMIT
 */
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Pool } from 'undici';
import { table } from '../../cli/show/table.ts';
import { shutdownSignal } from '../../cli/signals.ts';
import { TrialgateError } from '../../core/errors.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { foldersInCycles, importsOf, sourceFiles } from '../../tests/support/oracles/folder-imports.ts';
import { until } from '../../tests/support/harness/until.ts';
import { provenance } from '../deployment.ts';
import { optionsOf } from '../options.ts';
import { gatewayTarget } from './cell.ts';
import { checkedOut } from './checked-out.ts';
import { body, conversation, FORMS } from './load/bodies.ts';
import { post } from './load/prime.ts';
import { startEngine } from './parts/engine.ts';
import { startGateway } from './parts/gateway.ts';
import { startPostgres } from './parts/postgres.ts';

const TOKENS = 64;
const TURNS = 3;

const options = optionsOf(import.meta.url, { before: null });
if (options.before === null)
  throw new TrialgateError('bad_input', '--before: name the commit to compare with; see --help');

const signal = shutdownSignal();
await using stack = new AsyncDisposableStack();
const folder = await mkdtemp(join(tmpdir(), 'trialgate-shape-'));
stack.defer(() => rm(folder, { recursive: true, force: true }));
const { path: before } = stack.use(checkedOut(options.before));
const postgres = stack.use(await startPostgres(signal));
const engine = stack.use(await startEngine(signal));
await engine.set({ tokens: TOKENS, paceMs: 0 });

const sides = [
  { name: options.before, repository: before },
  { name: 'now', repository: REPOSITORY },
];
const rows = [];
for (const { name, repository } of sides)
  rows.push([name, ...codeOf(repository), ...(await passedBy(repository))].map(String));
console.log(JSON.stringify(provenance(), null, 2));
console.log(
  `\n${table(['commit', 'files of gateway/', 'folders in a circle', 'files that name vLLM', 'of them in a folder of its own', "gateway's files that a plain call passes", 'of all its files'], rows)}`,
);

function codeOf(repository: string): number[] {
  const files = sourceFiles(join(repository, 'gateway'));
  const naming = files.filter(([, text]) => /vllm/i.test(text)).map(([file]) => file);
  return [
    files.length,
    foldersInCycles(importsOf(files)).length,
    naming.length,
    naming.filter((file) => file.includes('/vllm/')).length,
  ];
}

/** Returns how many files a plain call that continues a conversation passes: those of `gateway/`, and all of the repository's. */
async function passedBy(repository: string): Promise<number[]> {
  const to = join(folder, `${Math.random()}`);
  await mkdir(to);
  const preload = pathToFileURL(join(REPOSITORY, 'bench/gateway/shape/coverage.ts'));
  preload.searchParams.set('to', to);
  await using gateway = await startGateway({
    postgres,
    engine: engine.url,
    repository,
    nodeArgs: ['--import', preload.href],
    // With a profile the gateway runs unbundled, so that its files have their names.
    profileTo: () => {},
    signal,
  });
  const pool = new Pool(gateway.url);
  const [line] = await gatewayTarget(gateway).lines(1);
  if (!line) throw new Error('no trial was opened');
  const form = FORMS.chat_completions;
  const call = (turn: number) =>
    post(
      pool,
      line,
      body(conversation(line.name, turn, TOKENS, form), { stream: false, tokens: TOKENS, direct: false }, form),
      signal,
    );
  const filesSince = async (number: number): Promise<string[]> => {
    process.kill(gateway.pid, 'SIGUSR2');
    const file = join(to, `${number}.json`);
    const text = await until(() => readFile(file, 'utf8').catch(() => null));
    return JSON.parse(text) as string[];
  };
  for (let turn = 1; turn <= TURNS; turn++) await call(turn);
  await filesSince(1);
  await call(TURNS + 1);
  const root = pathToFileURL(`${repository}/`).href;
  const passed = (await filesSince(2)).filter((url) => url.startsWith(root) && !url.includes('/node_modules/'));
  await pool.close();
  return [passed.filter((url) => url.startsWith(`${root}gateway/`)).length, passed.length];
}
