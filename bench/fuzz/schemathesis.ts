import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { INSTALLS } from '../../cli/folders.ts';
import { findPython } from '../../cli/install/python.ts';
import { failure, runLogged } from '../../cli/install/run-step.ts';
import type { NodeGateway, NodeGatewayOptions } from '../../gateway/node.ts';
import { FakeEngine } from '../../gateway/testing/fake-engine.ts';
import { TestPostgres } from '../../store/testing/postgres.ts';

const PACKAGE = 'schemathesis==4.32.5';
const VENV = join(INSTALLS.root, 'fuzz');
const LOG = join(INSTALLS.root, 'logs/fuzz.log');
const ADMIN_KEY = 'admin-key-of-the-fuzzer';
/** It wants 405 for a method that a path does not have: ours says 404. And a good body may be refused for what came before it (409). */
const NOT_OURS = 'unsupported_method,positive_data_acceptance';

const schemathesis = join(VENV, 'bin/st');

async function install(signal: AbortSignal): Promise<void> {
  if (existsSync(schemathesis)) return;
  for (const command of [[findPython(undefined).path, '-m', 'venv', VENV], [join(VENV, 'bin/python'), '-m', 'pip', 'install', '--no-input', PACKAGE]]) {
    const output = await runLogged(LOG, command, { signal });
    if (output.code !== 0) throw failure(`installing ${PACKAGE}`, output, LOG);
  }
}

/** `start`: of the gateway that is asked. */
export type DocumentOptions = { seed: number; examples: number; start: (options: NodeGatewayOptions) => Promise<NodeGateway>; signal: AbortSignal };
export type DocumentReport = { faults: number; text: string };

/** schemathesis asks a gateway everything that its document allows, and what it does not; `text`: what it says of that. */
export async function fuzzDocument({ seed, examples, start, signal }: DocumentOptions): Promise<DocumentReport> {
  await install(signal);
  const folder = await mkdtemp(join(tmpdir(), 'fuzz-'));
  const postgres = await TestPostgres.create();
  const engine = await new FakeEngine().start();
  const unforeseen: string[] = [];
  const gateway = await start({
    host: '127.0.0.1', port: 0, engines: [engine.url], databaseUrl: postgres.url, adminKey: ADMIN_KEY, secret: 'a secret of sixteen characters', drainMs: 500,
    log: (line) => unforeseen.push(line),
  });
  try {
    const options = ['-H', `Authorization: Bearer ${ADMIN_KEY}`, '--seed', String(seed), '-n', String(examples), '-c', 'all', '--exclude-checks', NOT_OURS, '--continue-on-failure', '--no-color'];
    // By its interpreter: its first line names the folder in which it was installed.
    const output = await runLogged(LOG, [join(VENV, 'bin/python'), schemathesis, 'run', `${gateway.url}/openapi.json`, ...options], { signal, cwd: folder });
    const text = [output.text.trim(), ...unforeseen.slice(0, 20).map((line) => `log: ${line}`)].join('\n');
    return { faults: unforeseen.length + (output.code === 0 ? 0 : 1), text };
  } finally {
    await gateway.close();
    await engine.stop();
    await postgres.close();
    await rm(folder, { recursive: true, force: true });
  }
}
