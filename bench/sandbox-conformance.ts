/**
 * Tries everything that a kind of sandbox must keep on each kind (`trialgate sandbox test`), and prints what passed and how long it took.
 *
 *   node bench/sandbox-conformance.ts --large > bench/results/sandbox-conformance.txt
 *   node bench/sandbox-conformance.ts --table
 *
 * `--large` also copies 100,000 files and a file of 1 GB. For `container` it starts a podman of its own, unless DOCKER_HOST names an engine, and
 * for `slurm` and `kubernetes` a cluster of one node. That of `kubernetes` is a fake that runs pods in a podman, unless KUBECONFIG names a cluster;
 * the result says so, and is not in the table. A kind for which this machine lacks something is left out. `--table` tries nothing: it prints the
 * table of docs/sandboxes.md from bench/results/sandbox-conformance*.txt.
 */
import { testKind, type KindReport } from '../cli/sandbox/test-kind.ts';
import { EXIT } from '../cli/exit.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { TrialgateError } from '../core/errors.ts';
import { isSandboxKind, SANDBOX_KINDS, type SandboxKind } from '../core/run-config/sandbox.ts';
import { openBackend } from '../activities/sandbox/backends.ts';
import { startKubernetes } from '../tests/support/harness/kubernetes.ts';
import { noPodman, startPodman } from '../tests/support/harness/podman.ts';
import { noSlurm, startSlurm } from '../tests/support/harness/slurm.ts';
import { provenance } from './deployment.ts';
import { eachKind } from './each-kind.ts';
import { optionsOf } from './options.ts';
import { conformanceTable, ON_A_FAKE } from './sandbox-conformance/table.ts';

const options = optionsOf(import.meta.url, { large: false, table: false, kinds: SANDBOX_KINDS.join(',') });
const signal = shutdownSignal();
await using stack = new AsyncDisposableStack();
const onFakes = new Set<SandboxKind>();

async function start(kind: SandboxKind): Promise<void> {
  if (kind === 'container' && process.env.DOCKER_HOST === undefined && noPodman() === null)
    process.env.DOCKER_HOST = stack.use(await startPodman(signal)).host;
  if (kind === 'kubernetes' && process.env.KUBECONFIG === undefined && noPodman() === null) {
    process.env.KUBECONFIG = stack.use(await startKubernetes(signal)).kubeconfig;
    onFakes.add(kind);
  }
  if (kind === 'slurm' && noSlurm() === null)
    process.env.PATH = `${stack.use(await startSlurm(signal)).bin}:${process.env.PATH}`;
  await openBackend({ kind }, signal);
}

async function measure(kind: SandboxKind): Promise<KindReport> {
  console.log(`\n${kind}${onFakes.has(kind) ? ON_A_FAKE : ''}`);
  return testKind(kind, { large: options.large }, signal, console.log);
}

if (options.table) console.log(conformanceTable());
else {
  const kinds = options.kinds.split(',').map((name) => {
    if (isSandboxKind(name)) return name;
    throw new TrialgateError('bad_input', `--kinds: there is no kind ${name}: ${SANDBOX_KINDS.join(', ')}`);
  });
  console.log(JSON.stringify(provenance(), null, 2));
  const { incomplete, hasFailed } = await eachKind(kinds, { start, measure }, { signal, report: console.error });
  if (incomplete.length > 0) console.log(`\n${incomplete.join('\n')}`);
  signal.throwIfAborted();
  if (hasFailed) process.exitCode = EXIT.failed;
}
