/**
 * Tries everything that a kind of sandbox must keep on each kind (`trialgate sandbox test`), and prints what passed and how long it took.
 *
 *   node bench/sandbox-conformance.ts --large yes
 *
 * `--large yes` also copies 100,000 files and a file of 1 GB. For `container` it starts a podman of its own, unless DOCKER_HOST names an engine, and
 * for `slurm` and `kubernetes` a cluster of one node, of which that of `kubernetes` is a fake that runs pods in a podman.
 */
import { testKind } from '../cli/sandbox/test-kind.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { SANDBOX_KINDS } from '../core/run-config/sandbox.ts';
import { startKubernetes } from '../tests/support/harness/kubernetes.ts';
import { noPodman, startPodman } from '../tests/support/harness/podman.ts';
import { noSlurm, startSlurm } from '../tests/support/harness/slurm.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';

const { large } = optionsOf(import.meta.url, { large: 'no' });
const signal = shutdownSignal();
await using stack = new AsyncDisposableStack();
if (process.env.DOCKER_HOST === undefined && noPodman() === null)
  process.env.DOCKER_HOST = stack.use(await startPodman(signal)).host;
if (process.env.KUBECONFIG === undefined && noPodman() === null)
  process.env.KUBECONFIG = stack.use(await startKubernetes(signal)).kubeconfig;
if (noSlurm() === null) process.env.PATH = `${stack.use(await startSlurm(signal)).bin}:${process.env.PATH}`;
console.log(JSON.stringify(provenance(), null, 2));
for (const kind of SANDBOX_KINDS) {
  console.log(`\n${kind}`);
  await testKind(kind, { large: large === 'yes' }, signal, console.log);
}
