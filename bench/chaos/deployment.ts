import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { chmod, cp, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { resolveConfig } from '../../cli/config/resolve.ts';
import type { Deployment } from '../../cli/config/schema.ts';
import { homeFolders, INSTALLS } from '../../cli/folders.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { folderElsewhere } from '../../cli/supervisor/components/postgres-home.ts';
import { down } from '../../cli/supervisor/down.ts';
import { LOOPBACK } from '../../cli/supervisor/gateways.ts';
import { freePort } from '../../core/free-port.ts';
import { ON_SHARED_CORES } from '../../tests/support/harness/temporary-deployment.ts';
import { isAlive, type ProcessId } from '../../cli/supervisor/processes.ts';
import { livingState, readState } from '../../cli/supervisor/state.ts';
import type { Wiring } from './components.ts';
import { Link } from './link.ts';
import { processesOf } from './processes.ts';
import { SmallDisk } from '../../tests/support/harness/small-disk.ts';
import { writeTinyModel } from '../../tests/support/harness/tiny-model.ts';

export const COMPONENTS = [
  'postgres',
  'temporal',
  'gateway',
  'engine',
  'workflow-worker',
  'activity-worker',
  'gpu-worker',
] as const;
export const LINKS = ['postgres', 'temporal', 'gateway', 'engine'] as const;
/** Sizes in MiB. `home` has Temporal's data, the logs, the sandboxes and the supervisor's state. */
const DISKS = { home: 384, postgres: 768, checkpoints: 128, batches: 32 };
export const DISK_NAMES = Object.keys(DISKS) as (keyof typeof DISKS)[];
export type DiskName = keyof typeof DISKS;
export type LinkName = (typeof LINKS)[number];

const UP_MS = 180_000;

/** A complete deployment with a small engine, on links that can be cut and, if this machine permits mounts, on disks that can be full. */
export class ChaosDeployment {
  readonly config: Deployment;
  readonly model: string;
  readonly engineLog: string;
  readonly links: Record<LinkName, Link>;
  /** Null when this machine permits no mounts. */
  readonly disks: Record<DiskName, SmallDisk> | null;
  readonly #folder: string;
  readonly #env: NodeJS.ProcessEnv;
  readonly #wires: Wiring;

  private constructor(
    parts: Pick<ChaosDeployment, 'config' | 'model' | 'engineLog' | 'links' | 'disks'>,
    own: { folder: string; env: NodeJS.ProcessEnv; wires: Wiring },
  ) {
    ({
      config: this.config,
      model: this.model,
      engineLog: this.engineLog,
      links: this.links,
      disks: this.disks,
    } = parts);
    ({ folder: this.#folder, env: this.#env, wires: this.#wires } = own);
  }

  static async create(signal: AbortSignal): Promise<ChaosDeployment> {
    const folder = await mkdtemp(join(tmpdir(), 'trialgate-chaos-'));
    // PostgreSQL and the sandboxes run as other users when we are root.
    await chmod(folder, 0o755);
    const home = join(folder, 'home');
    const disks = (await SmallDisk.refusal()) === null ? await mountAll(home) : null;
    const port = () => freePort(LOOPBACK);
    const [postgres, temporal, gateway] = [await port(), await port(), await port()];
    const near = {
      postgres: await port(),
      temporal: await port(),
      gateway: await port(),
      engine: join(folder, 'engine.sock'),
    };
    const wires = {
      postgres: near.postgres,
      temporal: near.temporal,
      engine: join(folder, 'run/engine.sock'),
      engineLog: join(folder, 'engine.jsonl'),
    };
    const host = LOOPBACK;
    const links = {
      postgres: await Link.open(near.postgres, { host, port: postgres }),
      temporal: await Link.open(near.temporal, { host, port: temporal }),
      gateway: await Link.open(near.gateway, { host, port: gateway }),
      engine: await Link.open(near.engine, { path: wires.engine }),
    };
    const model = join(folder, 'model');
    writeTinyModel(model);
    const env = {
      PATH: process.env['PATH'],
      HOME: folder,
      LANG: 'C.UTF-8',
      ...ON_SHARED_CORES,
      TRIALGATE_HOME: home,
      TRIALGATE_UNSANDBOXED: 'true',
      TRIALGATE_DEVICE: 'cpu',
      TRIALGATE_POSTGRES_PORT: String(postgres),
      TRIALGATE_TEMPORAL_PORT: String(temporal),
      TRIALGATE_GATEWAY_PORT: String(gateway),
      TRIALGATE_GATEWAY_URL: `http://${LOOPBACK}:${near.gateway}`,
      TRIALGATE_ENGINES: JSON.stringify([`unix:${near.engine}`]),
    };
    const { config } = resolveConfig({ env, cwd: folder });
    const deployment = new ChaosDeployment(
      { config, model, engineLog: wires.engineLog, links, disks },
      { folder, env, wires },
    );
    await deployment.up(signal).catch(async (error: unknown) => {
      await deployment.remove();
      throw error;
    });
    return deployment;
  }

  /** Starts the supervisor like `trialgate up`, repeatedly until the disk has room, as a person would. Returns when all is ready. */
  async up(signal: AbortSignal): Promise<void> {
    let child = this.#startSupervisor();
    for (
      const end = Date.now() + UP_MS;
      livingState(this.config.home)?.status !== 'ready';
      await sleep(100, undefined, { signal })
    ) {
      if (Date.now() > end)
        throw new Error(
          `the stack did not come up: ${readState(this.config.home)?.failure?.message ?? `see ${this.#folder}`}`,
        );
      if (child.exitCode === null) continue;
      await sleep(1000, undefined, { signal });
      child = this.#startSupervisor();
    }
  }

  #startSupervisor(): ChildProcess {
    const log = openSync(join(this.#folder, 'supervisor.log'), 'a');
    const args = [join(REPOSITORY, 'bench/chaos/supervise.ts'), JSON.stringify(this.#wires)];
    const child = spawn(INSTALLS.node, args, {
      cwd: this.#folder,
      env: this.#env,
      detached: true,
      stdio: ['ignore', log, log],
    });
    closeSync(log);
    child.unref();
    return child;
  }

  get supervisor(): ProcessId | null {
    const process = readState(this.config.home)?.supervisor;
    return process && isAlive(process) ? process : null;
  }

  /** Waits until a component serves and returns its process. */
  async serving(name: string, signal: AbortSignal): Promise<ProcessId> {
    for (const end = Date.now() + UP_MS; Date.now() < end; await sleep(100, undefined, { signal })) {
      const found = livingState(this.config.home)?.components.find((each) => each.name === name);
      if (found?.status === 'ready' && found.process && isAlive(found.process)) return found.process;
    }
    throw new Error(
      `${name} does not serve again: ${readState(this.config.home)?.components.find((each) => each.name === name)?.detail}`,
    );
  }

  /** Copies the logs of its processes. */
  async copyLogs(to: string): Promise<void> {
    await cp(homeFolders(this.config.home).logs, to, { recursive: true });
    await cp(join(this.#folder, 'supervisor.log'), join(to, 'supervisor.log'));
    await cp(this.engineLog, join(to, 'engine.jsonl'));
  }

  /** Stops the deployment. Returns the processes that did not end. */
  async remove(): Promise<string[]> {
    await down(this.config.home);
    await Promise.all(Object.values(this.links).map((link) => link.close()));
    const left = processesOf(this.#folder);
    for (const disk of Object.values(this.disks ?? {}).toReversed()) await disk.unmount();
    for (const folder of [this.#folder, folderElsewhere(this.config.home)])
      await rm(folder, { recursive: true, force: true });
    return left;
  }
}

async function mountAll(home: string): Promise<Record<DiskName, SmallDisk>> {
  // Root makes the mounts, so PostgreSQL's data is in a folder that its own user can reach.
  const postgres = join(folderElsewhere(home), 'data');
  await mkdir(home, { recursive: true });
  const whole = await SmallDisk.mount(home, DISKS.home);
  await chmod(home, 0o700);
  return {
    home: whole,
    postgres: await SmallDisk.mount(postgres, DISKS.postgres),
    checkpoints: await SmallDisk.mount(join(home, 'checkpoints'), DISKS.checkpoints),
    batches: await SmallDisk.mount(join(home, 'batches'), DISKS.batches),
  };
}
