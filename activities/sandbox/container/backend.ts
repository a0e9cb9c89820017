import type { ContainerInfo } from 'dockerode';
import { TrialgateError } from '../../../core/errors.ts';
import type { SandboxSetting } from '../../../core/run-config/sandbox.ts';
import type { FoundSandbox, SandboxBackend } from '../backend.ts';
import { removeNamed } from '../destroy-sandbox.ts';
import { emptySandbox, handOverAll, type Sandbox } from '../empty-sandbox.ts';
import { SandboxError } from '../errors.ts';
import { findOwned } from '../find-owned.ts';
import { isolation } from '../isolation.ts';
import { killSandbox } from '../kill-tree.ts';
import { homeDigest, markerOf } from '../names.ts';
import { readOwner } from '../owner.ts';
import { ownMounts, type SandboxPaths } from '../sandbox-paths.ts';
import { answered, connectEngine, messageOf } from './engine.ts';
import { prepareImage } from './images.ts';
import {
  closeAhead,
  explainContainer,
  LABELS,
  openWayAhead,
  removed,
  runContainer,
  type Place,
} from './run-container.ts';

const MOST_ROUNDS = 20;

/** Sandboxes in containers of Docker or podman on the worker's own host: of a task's image, or of this host's programs. */
export async function containerBackend(
  setting: Extract<SandboxSetting, { kind: 'container' }>,
  signal?: AbortSignal,
): Promise<SandboxBackend> {
  const engine = await connectEngine(signal);
  const { runtime } = setting;
  if (runtime !== undefined && !engine.runtimes.includes(runtime))
    throw new TrialgateError(
      'missing_prerequisite',
      `sandbox.runtime: ${engine.name} has no runtime ${JSON.stringify(runtime)} (it has ${engine.runtimes.join(', ')}): install it, or remove the key`,
    );
  const host = await isolation();
  const listed = (label: string) =>
    answered(engine.docker.listContainers({ all: true, filters: { label: [label] } }), 'listing containers');
  /** Ends what runs in a sandbox and removes its containers. Throws when one is left, which may still run. */
  const end = async (home: string, name: string): Promise<void> => {
    const marker = markerOf(home, name);
    await closeAhead(marker);
    await killSandbox(marker, (await readOwner(home, name))?.uid ?? null, host);
    const find = () => listed(`${LABELS.sandbox}=${marker}`);
    let found = await find();
    // Another removal of the same container may still be under way.
    for (let round = 0; found.length > 0 && round < MOST_ROUNDS; found = await find(), round += 1)
      for (const { Id } of found.toSorted(programsFirst)) await removed(engine.docker.getContainer(Id));
    if (found.length > 0) throw new SandboxError(`${engine.name} still has the container ${found[0]?.Id}`);
  };
  const destroy = async (home: string, name: string): Promise<void> => {
    try {
      await end(home, name);
    } catch (error) {
      // Its folder, user id and record stay, so that the next sweep finds the sandbox.
      return console.error(`sandbox ${name} is not removed, because its containers are left: ${messageOf(error)}`);
    }
    await removeNamed(home, name, { isolation: host });
  };
  /** Returns the sandboxes that have a record, and those of which only containers are left. */
  const find = async (home: string): Promise<FoundSandbox[]> => {
    const containers = await listed(`${LABELS.home}=${homeDigest(home)}`);
    const owned = await findOwned(home, 'container');
    const lost = new Set(containers.flatMap(({ Labels }) => Labels[LABELS.name] ?? []));
    for (const name of lost) if ((await readOwner(home, name)) !== null) lost.delete(name);
    return [...owned, ...[...lost].map((name) => ({ home, name, isOwnerAlive: false }))];
  };
  const placeOf = (sandbox: Sandbox): Place => {
    const { home, name, marker } = sandbox;
    const labels = { [LABELS.sandbox]: marker, [LABELS.home]: homeDigest(home), [LABELS.name]: name };
    return { engine, host, runtime, labels, own: ownMounts(sandbox, pathsOf(sandbox)) };
  };
  return {
    kind: 'container',
    host,
    statement: `Sandboxes run in containers of ${engine.name}${runtime === undefined ? '' : ` with ${runtime}`}: each sees its image, or this machine's programs, and its own files.`,
    capabilities: {
      networks: ['none', 'gateway', 'host'],
      mounts: true,
      images: true,
      forks: false,
      kernelLimits: engine.kernelLimits,
      snapshot: false,
      gpu: false,
    },
    pathsOf,
    pythonOf: ({ image }) => (image === null ? host.python.executable : 'python3'),
    prepare: (source, options) => prepareImage(engine, source, options),
    start: async ({ home, name, image }) => {
      await end(home, name);
      await removeNamed(home, name, { isolation: host });
      return emptySandbox(home, name, { isolation: host, kind: 'container', image });
    },
    startAhead: (sandbox, network, within) => openWayAhead(placeOf(sandbox), sandbox, network, within),
    copyIn: handOverAll,
    explain: (sandbox, command) => explainContainer(placeOf(sandbox), sandbox, command),
    run: (sandbox, command) => runContainer(placeOf(sandbox), sandbox, command),
    copyOut: async () => {},
    destroy,
    find,
  };
}

const pathsOf = ({ image }: Sandbox): SandboxPaths => ({
  work: image?.workdir ?? '/app',
  home: '/home/agent',
  tmp: '/tmp',
  logs: '/logs',
});

/** A relay's container has the network of its program, which the engine therefore removes first. */
const programsFirst = (one: ContainerInfo, other: ContainerInfo): number =>
  Number(one.Labels[LABELS.role] === 'relay') - Number(other.Labels[LABELS.role] === 'relay');
