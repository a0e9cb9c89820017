import { createHash, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { TrialgateError } from '../../../core/errors.ts';
import { makeOnce } from '../../environments/make-once.ts';
import type { Image, PrepareOptions } from '../backend.ts';
import { unpack } from '../container/image-files.ts';
import { requireUsable, workdirOf } from '../container/images.ts';
import { shareWork } from '../container/shared-work.ts';
import { hostWork, SandboxError } from '../errors.ts';
import { markerOf } from '../names.ts';
import { removeOwner, writeOwner } from '../owner.ts';
import { walkFiles } from '../walk-files.ts';
import { execute, openChannel } from './channel.ts';
import type { Cluster, KubernetesSetting } from './cluster.ts';
import { deploymentId, sandboxLabel } from './deployment-id.ts';
import { drawUser, LABELS, podOf, PROGRAM } from './manifests.ts';
import { createPod, deletePod, podStarted, readPod, WrongImageError } from './pods.ts';

type Place = { cluster: Cluster; setting: KubernetesSetting };

/** The facts that a worker reads of an image in a pod of it. */
type Facts = { name: string; digest: string } & Pick<Image, 'workdir' | 'env'>;

/** The images whose facts this process has read. The key is the deployment's folder, the API server, the namespace and the image's name. */
const known = new Map<string, Facts>();

/** The node sets these in each container. The pod's programs get none of them. */
const OF_NODE = /^(KUBERNETES_.*|HOSTNAME|PWD|SHLVL|OLDPWD|_|container|TERM|HOME)$/;
const LIMITS = { seconds: 600, memoryMb: 512, outputBytes: 2 ** 20, processes: 64, cpus: 1, storageMb: 64 };

/**
 * Returns an image of the cluster. The first time, a pod of it tells its variables and its work folder, whose files are copied to this host.
 * @throws TrialgateError `bad_input` when no sandbox can have it; SandboxError when the cluster fails
 */
export async function prepareImage(place: Place, name: string, options: PrepareOptions): Promise<Image> {
  const key = JSON.stringify([options.home, place.cluster.name, place.cluster.namespace, name]);
  if (!known.has(key)) {
    options.report?.(`starting a pod of the image ${name}, to look into it (once)`);
    await shareWork(`kubernetes ${key}`, options.signal, async (signal) => {
      const work = { ...options, signal };
      const facts = await withPod(place, name, work, async (pod, digest) => {
        const seen = await lookInto(place.cluster, { name, pod, digest }, signal);
        await filesOf(place, seen, work, pod);
        return seen;
      });
      known.set(key, facts);
    });
  }
  const facts = known.get(key);
  if (!facts) throw new SandboxError(`nothing was learned of the image ${name}`);
  const { workdir, env } = facts;
  // The copy may have been removed since, because nothing used it for long.
  return { id: name, workdir, env, files: await filesOf(place, facts, options, null) };
}

/** Does work with a pod of an image, which the next worker deletes if this one dies. */
async function withPod<T>(
  { cluster, setting }: Place,
  image: string,
  { home, signal }: Pick<PrepareOptions, 'home' | 'signal'>,
  work: (pod: string, digest: string) => Promise<T>,
): Promise<T> {
  const name = `trialgate-image-${randomBytes(8).toString('hex')}`;
  const deployment = await deploymentId(home);
  const { context, namespace } = cluster;
  const body = podOf(setting, {
    name,
    labels: { [LABELS.home]: deployment, [LABELS.sandbox]: sandboxLabel(deployment, markerOf(home, name)) },
    sandbox: image,
    image,
    folders: [],
    limits: LIMITS,
    hostName: null,
    uid: drawUser(setting),
  });
  await hostWork('the record of a pod', () =>
    writeOwner(home, name, { uid: null, kind: 'kubernetes', cluster: { context, namespace } }),
  );
  try {
    await createPod(cluster, body, signal);
    await podStarted(cluster, name, signal);
    const pod = await readPod(cluster, name);
    const digest = pod?.status?.containerStatuses?.find((one) => one.name === PROGRAM)?.imageID;
    return await work(name, digest || image);
  } catch (error) {
    if (!(error instanceof WrongImageError) || !error.isProgram) throw error;
    throw new TrialgateError(
      'bad_input',
      `the image ${image} cannot be used: ${error.message}: correct its name; a sandbox needs /bin/sh, env and tar in its image`,
      { cause: error },
    );
  } finally {
    await deletePod(cluster, name, true);
    await removeOwner(home, name);
  }
}

type Opened = { name: string; pod: string; digest: string };

async function lookInto(cluster: Cluster, { name, pod, digest }: Opened, signal: AbortSignal): Promise<Facts> {
  const run = async (script: string) => {
    const command = ['/bin/sh', '-c', script];
    const ran = await execute(cluster, { pod, container: PROGRAM, command }, signal);
    if (ran.exitCode === null || ran.exitCode < 0)
      throw new SandboxError(`the image ${name}: the cluster did not run a command in its pod to the end`);
    return ran;
  };
  const looked = await run('pwd && env -0');
  if (looked.exitCode !== 0)
    throw new TrialgateError(
      'bad_input',
      `the image ${name}: its shell does not run \`env -0\` (${looked.stderr.trim().slice(-300)}): a sandbox needs /bin/sh, env and tar in its image`,
    );
  const text = looked.stdout.toString();
  const end = text.indexOf('\n');
  const workdir = workdirOf(text.slice(0, end));
  const mounts = await run(
    'while read -r _ _ _ _ path options _; do echo "$options $path"; done < /proc/self/mountinfo',
  );
  requireUsable(name, workdir, volumesIn(mounts.stdout.toString()));
  const variables = text
    .slice(end + 1)
    .split('\0')
    .filter(Boolean)
    .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)] as const);
  const env = Object.fromEntries(variables.filter(([variable]) => !OF_NODE.test(variable)));
  return { name, digest, workdir, env };
}

/** Matches the paths that a container runtime mounts in every container. The pod itself has only the volume `/dev/shm`. */
const OF_RUNTIME =
  /^\/($|(proc|sys|dev|run|var\/run|tmp|var\/tmp)($|\/)|etc\/(hosts|hostname|resolv\.conf|passwd|group)$)/;

/** Returns the volumes of an image: the runtime mounts a folder for each, which is writable. */
const volumesIn = (mounts: string): string[] =>
  mounts
    .split('\n')
    .filter((line) => /^rw\b/.test(line))
    .map((line) => line.slice(line.indexOf(' ') + 1))
    .filter((path) => !OF_RUNTIME.test(path));

/** Returns the copy of the files in an image's work folder; null when there are none. `pod`: one of the image; null: one is started if needed. */
async function filesOf(
  place: Place,
  facts: Facts,
  { home, signal, report = () => {} }: PrepareOptions,
  pod: string | null,
): Promise<string | null> {
  const { name, digest, workdir } = facts;
  const key = createHash('sha256').update(`${digest} ${workdir}`).digest('hex').slice(0, 32);
  const what = `${workdir} of the image ${name}`;
  const lines = { before: `copying ${what} (once)`, after: `copied ${what}` };
  const folder = await makeOnce(join(home, 'images', key), lines, { signal, report }, (draft, stopped) =>
    hostWork(what, () => {
      if (pod !== null) return copyFiles(place.cluster, facts, { pod, draft, signal: stopped });
      return withPod(place, name, { home, signal: stopped }, (fresh) =>
        copyFiles(place.cluster, facts, { pod: fresh, draft, signal: stopped }),
      );
    }),
  );
  for await (const _ of walkFiles(folder)) return folder;
  return null;
}

async function copyFiles(
  cluster: Cluster,
  { name, workdir }: Facts,
  { pod, draft, signal }: { pod: string; draft: string; signal: AbortSignal },
): Promise<void> {
  // The paths in the archive begin with a folder, as those that a container engine makes.
  const script = 'test -d "$1" || exit 0; exec tar -c -f - -C "$1" .';
  const command = ['/bin/sh', '-c', script, 'sh', workdir];
  const what = `${workdir} of the image ${name}`;
  const channel = await openChannel(cluster, { pod, container: PROGRAM, command });
  channel.stderr.resume();
  try {
    await unpack(channel.stdout, draft, { name, workdir }, signal);
    const exitCode = await channel.ended;
    if (exitCode === null || exitCode < 0) throw new SandboxError(`the connection ended while ${what} was read`);
    if (exitCode !== 0)
      throw new TrialgateError(
        'bad_input',
        `${what} could not be read: a user that is not root must be able to read it, and the image needs tar`,
      );
  } finally {
    channel.close();
  }
}
