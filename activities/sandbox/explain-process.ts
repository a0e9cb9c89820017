import { hostFiles } from './bubblewrap.ts';
import type { LaunchSpec } from './launcher-process.ts';
import { environmentOf, linkOf } from './run-process.ts';
import { limitsInView, networkInView, visibleMounts, type View } from './view.ts';

/** Returns what the process of a spec sees, from what `runProcess` would give it. The way to the gateway is opened and closed for it. */
export async function explainProcess(spec: Omit<LaunchSpec, 'signal'>): Promise<View> {
  const { isolation, uid, network, limits, mounts, cwd } = spec;
  const isWrapped = isolation.kind === 'bubblewrap';
  const hasCgroup = isolation.cgroup !== null;
  await using link = await linkOf(spec);
  const own = mounts.filter(({ host, inside }) => host === inside);
  return {
    user: userInView(isWrapped, uid),
    network: networkInView(network, 'a relay that starts before the command'),
    mounts: visibleMounts(
      isWrapped
        ? [...hostFiles(isolation.python), ...mounts, ...link.mounts]
        : // Without bubblewrap nothing is mounted: the process sees the machine, as far as its user may.
          [{ host: '/', inside: '/', writable: isolation.kind === 'none' }, ...own],
    ),
    own: isWrapped ? OWN : [],
    env: { ...environmentOf(spec), PWD: cwd },
    limits: limitsInView(limits, { memory: hasCgroup, cpus: hasCgroup, processes: true, storage: false }),
  };
}

const OWN = [
  { inside: '/', what: 'an empty folder in memory, read-only' },
  { inside: '/dev', what: 'null, zero, full, random, urandom, tty and terminals of its own' },
  { inside: '/proc', what: 'its own processes' },
];

function userInView(isWrapped: boolean, uid: number | null): string {
  if (uid !== null) return `${uid}, a user of this sandbox alone`;
  const worker = `the worker's own user (${process.getuid?.() ?? 'unknown'})`;
  return isWrapped ? `65534 inside, which is ${worker} outside; without any capability` : worker;
}
