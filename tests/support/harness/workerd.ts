import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { z } from 'zod';

/** The upload of `wrangler deploy`: the script, its compatibility date and its flags. */
export type Bundle = { script: string; compatibilityDate: string; compatibilityFlags: string[] };

type Options = {
  bundle: Bundle;
  /** Variables and secrets. */
  variables: Record<string, string>;
  databaseUrl: string;
  onLog: (line: string) => void;
};

const DOCS = path.dirname(createRequire(import.meta.url).resolve('swagger-ui-dist/package.json'));
const installed = z.object({ default: z.string() });
const listening = z.object({ event: z.literal('listen'), port: z.number() });

/** Starts workerd, the runtime of Cloudflare's Workers, as a process with one Worker and a Hyperdrive binding to a PostgreSQL. */
export async function startWorkerd({
  bundle,
  variables,
  databaseUrl,
  onLog,
}: Options): Promise<{ url: string; pid: number | undefined; close: () => Promise<void> }> {
  const folder = await mkdtemp(path.join(tmpdir(), 'trialgate-workerd-'));
  const config = path.join(folder, 'config.capnp');
  await writeFile(config, configOf({ bundle, variables, databaseUrl }));
  const binary = installed.parse(createRequire(import.meta.url)('workerd')).default;
  const child = spawn(binary, ['serve', config, '--control-fd=3', '--import-path=/'], {
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
  });
  const lines = (stream: unknown) => createInterface({ input: stream as Readable });
  for (const stream of [child.stdout, child.stderr]) lines(stream).on('line', onLog);
  const ended = once(child, 'exit');
  const end = () => child.kill('SIGKILL');
  // The child ends with the test process.
  process.once('exit', end);
  const close = async () => {
    process.removeListener('exit', end);
    end();
    await ended;
    await rm(folder, { recursive: true, force: true });
  };
  try {
    const [line] = await Promise.race([
      once(lines(child.stdio[3]), 'line'),
      ended.then(() => Promise.reject(new Error('workerd ended before it listened'))),
    ]);
    return { url: `http://127.0.0.1:${listening.parse(JSON.parse(String(line))).port}`, pid: child.pid, close };
  } catch (error) {
    await close();
    throw error;
  }
}

function configOf({ bundle, variables, databaseUrl }: Omit<Options, 'onLog'>): string {
  const database = new URL(databaseUrl);
  const text = (value: string) => JSON.stringify(value);
  const bindings = Object.entries(variables).map(([name, value]) => `(name = ${text(name)}, text = ${text(value)})`);
  const login = `user = ${text(database.username)}, password = ${text(database.password || 'none')}, scheme = "postgresql"`;
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "gateway", worker = .gateway),
    (name = "database", external = (address = ${text(database.host)}, tcp = ())),
    (name = "docs", disk = (path = ${text(DOCS)})),
    (name = "internet", network = (allow = ["public", "private"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "gateway")],
);
const gateway :Workerd.Worker = (
  modules = [(name = "worker.js", esModule = embed ${text(bundle.script)})],
  compatibilityDate = ${text(bundle.compatibilityDate)},
  compatibilityFlags = [${bundle.compatibilityFlags.map(text).join(', ')}],
  durableObjectNamespaces = [(className = "RelayObject", uniqueKey = "relay")],
  durableObjectStorage = (inMemory = void),
  bindings = [
    (name = "HYPERDRIVE", hyperdrive = (designator = "database", database = ${text(database.pathname.slice(1))}, ${login})),
    (name = "DOCS", service = "docs"),
    (name = "RELAY", durableObjectNamespace = "RelayObject"),
    ${bindings.join(',\n    ')}
  ],
);
`;
}
