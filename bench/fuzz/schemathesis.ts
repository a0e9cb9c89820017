import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { INSTALLS } from '../../cli/folders.ts';
import { findPython } from '../../cli/install/python.ts';
import { failure, runLogged } from '../../cli/install/run-step.ts';
import type { NodeGateway, NodeGatewayOptions } from '../../gateway/runtimes/node/start-gateway.ts';
import { FakeEngine } from '../../tests/support/fakes/fake-engine.ts';
import { TestPostgres } from '../../tests/support/harness/postgres.ts';

const PACKAGE = 'schemathesis==4.32.5';
const VENV = join(INSTALLS.root, 'fuzz');
const LOG = join(INSTALLS.root, 'logs/fuzz.log');
const ADMIN_KEY = 'admin-key-of-the-fuzzer';
/** Checks that do not apply: our gateway answers 404, not 405, to an unknown method of a path, and may refuse a valid body because of earlier calls (409). */
const NOT_OURS = 'unsupported_method,positive_data_acceptance';

const schemathesis = join(VENV, 'bin/st');

async function install(signal: AbortSignal): Promise<void> {
  if (existsSync(schemathesis)) return;
  for (const command of [
    [findPython(undefined).path, '-m', 'venv', VENV],
    [join(VENV, 'bin/python'), '-m', 'pip', 'install', '--no-input', PACKAGE],
  ]) {
    const output = await runLogged(LOG, command, { signal });
    if (output.code !== 0) throw failure(`installing ${PACKAGE}`, output, LOG);
  }
}

/** `start` starts the gateway under test. */
export type DocumentOptions = {
  seed: number;
  examples: number;
  start: (options: NodeGatewayOptions) => Promise<NodeGateway>;
  signal: AbortSignal;
};
export type DocumentReport = { faults: number; text: string };

/** Runs schemathesis, which sends a gateway valid and invalid requests of its API document. `text` is its report. */
export async function fuzzDocument({ seed, examples, start, signal }: DocumentOptions): Promise<DocumentReport> {
  await install(signal);
  const folder = await mkdtemp(join(tmpdir(), 'fuzz-'));
  const postgres = await TestPostgres.create();
  const engine = await new FakeEngine().start();
  const unforeseen: string[] = [];
  const gateway = await start({
    host: '127.0.0.1',
    port: 0,
    engines: [engine.url],
    databaseUrl: postgres.url,
    adminKey: ADMIN_KEY,
    secret: 'a secret of sixteen characters',
    drainMs: 500,
    log: (line) => unforeseen.push(line),
  });
  try {
    const options = [
      '-H',
      `Authorization: Bearer ${ADMIN_KEY}`,
      '--seed',
      String(seed),
      '-n',
      String(examples),
      '-c',
      'all',
      '--exclude-checks',
      NOT_OURS,
      '--continue-on-failure',
      '--no-color',
    ];
    // Started by the interpreter, because the script's first line names the folder in which it was installed.
    const output = await runLogged(
      LOG,
      [join(VENV, 'bin/python'), schemathesis, 'run', `${gateway.url}/openapi.json`, ...options],
      { signal, cwd: folder },
    );
    const text = [output.text.trim(), ...unforeseen.slice(0, 20).map((line) => `log: ${line}`)].join('\n');
    return { faults: unforeseen.length + (output.code === 0 ? 0 : 1), text };
  } finally {
    await gateway.close();
    await engine.stop();
    await postgres.close();
    await rm(folder, { recursive: true, force: true });
  }
}
