import { DEFAULT_POD_IMAGE } from '../../../core/run-config/sandbox.ts';
import type { Capabilities, Command } from '../backend.ts';
import type { Sandbox } from '../empty-sandbox.ts';
import { limitsInView, networkInView, type View } from '../view.ts';
import { foldersOf, type Place } from './run-pod.ts';

/** Returns what a program's pod would have. It has no file of the worker's host itself, but copies. */
export function explainPod(
  place: Place,
  sandbox: Sandbox,
  command: Command,
  kernelLimits: Capabilities['kernelLimits'],
): View {
  const image = sandbox.image?.id ?? place.setting.image ?? DEFAULT_POD_IMAGE;
  const copies = foldersOf(place, sandbox, command, 'the script that starts the program');
  return {
    user: 'one of the pod’s own, drawn at random, which is not root',
    network: networkInView(command.network, 'the worker, over the connection to the pod'),
    mounts: [],
    own: [
      { inside: '/', what: `the image ${image}, read-only` },
      ...copies.map(({ inside, host, writable }) => ({
        inside,
        what: `a copy of ${host}${writable ? ', which comes back' : ', read-only'}`,
      })),
      { inside: '/dev', what: 'null, zero, full, random, urandom, tty; /dev/shm, which counts as memory' },
      { inside: '/proc', what: 'its own processes' },
      { inside: '/sys', what: 'the node’s, read-only' },
      ...['hosts', 'hostname', 'resolv.conf'].map((name) => ({
        inside: `/etc/${name}`,
        what: 'written by the node',
      })),
      // Some runtimes have these, others not.
      ...['passwd', 'group'].map((name) => ({
        inside: `/etc/${name}`,
        what: 'with some container runtimes written by them',
      })),
      { inside: '/run', what: 'with some container runtimes in memory, writable' },
      { inside: '/var/tmp', what: 'with some container runtimes in memory, writable' },
    ],
    env: command.env,
    limits: limitsInView(command.limits, kernelLimits),
  };
}
