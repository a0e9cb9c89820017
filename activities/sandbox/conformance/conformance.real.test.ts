import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { noPodman, startPodman } from '../../../tests/support/harness/podman.ts';
import { startKubernetes } from '../../../tests/support/harness/kubernetes.ts';
import { noSlurm, startSlurm } from '../../../tests/support/harness/slurm.ts';
import type { SandboxKind } from '../../../core/run-config/sandbox.ts';
import type { SandboxBackend } from '../backend.ts';
import { openBackend } from '../backends.ts';
import { isolation } from '../isolation.ts';
import { CHECKS, HOST_NETWORK } from './checks.ts';
import { runCheck } from './run-checks.ts';

const signal = new AbortController().signal;
const bubblewrapMissing = (await isolation()).kind === 'bubblewrap' ? null : 'bubblewrap does not work here';
/** The checks that a kind leaves out on the machine of these tests. The others must run. */
const SKIPPED: Partial<Record<SandboxKind, string[]>> = { kubernetes: [HOST_NETWORK] };
/** The reasons for which a kind is not tried on this machine. */
const missing: Record<SandboxKind, string | null> = {
  bubblewrap: bubblewrapMissing,
  container: noPodman(),
  slurm: bubblewrapMissing ?? noSlurm(),
  kubernetes: noPodman(),
};

describe.each(['bubblewrap', 'container', 'slurm', 'kubernetes'] as const)('%s', { concurrent: true }, (kind) => {
  const started = new AsyncDisposableStack();
  let backend: SandboxBackend;

  beforeAll(async () => {
    if (missing[kind] === null) backend = await openWithServices(kind, started);
  });
  afterAll(() => started.disposeAsync());

  for (const check of CHECKS.filter(({ isLarge }) => !isLarge))
    it.skipIf(missing[kind] !== null)(check.sentence, async () => {
      const result = await runCheck(backend, check, signal);
      const isPossible = !SKIPPED[kind]?.includes(check.sentence);
      expect(result).toMatchObject(isPossible ? { outcome: 'passed', reason: null } : { outcome: 'skipped' });
    });
});

/** Starts what a kind needs, and opens the kind. */
async function openWithServices(kind: SandboxKind, started: AsyncDisposableStack): Promise<SandboxBackend> {
  if (kind === 'container') {
    const { host } = started.use(await startPodman(signal));
    return openWith('DOCKER_HOST', host, kind);
  }
  if (kind === 'kubernetes') {
    const { kubeconfig } = started.use(await startKubernetes(signal));
    return openWith('KUBECONFIG', kubeconfig, kind);
  }
  if (kind === 'slurm') {
    const { bin } = started.use(await startSlurm(signal));
    return openWith('PATH', `${bin}:${process.env.PATH}`, kind);
  }
  return openBackend({ kind });
}

/** Opens a kind while an environment variable has this value. */
async function openWith(name: string, value: string, kind: SandboxKind): Promise<SandboxBackend> {
  const before = process.env[name];
  process.env[name] = value;
  try {
    return await openBackend({ kind });
  } finally {
    if (before === undefined) delete process.env[name];
    else process.env[name] = before;
  }
}
