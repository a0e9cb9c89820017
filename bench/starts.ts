/**
 * Measures the start of sandboxes: trials of an agent that makes one call and ends, several at once, then a burst that is asked for at the same moment and gets no reply before the last has called,
 * in each kind of sandbox that runs here. Then random kills: sandboxes are cancelled or removed at a random moment of their life. What is
 * left is counted after each.
 *
 *   node bench/starts.ts --trials 1000 --at-once 8 --burst 64 --kills 200 --kinds bubblewrap,container,slurm --json
 *
 * The baseline is the same program without a sandbox. `cold` is a command in a process of its own, `warm` a Python function in a fork of a
 * warm process, and `pool` a command in a sandbox that was started before (`warm_sandboxes`; as many as the burst has trials, of which later ones find none). For `container` it starts a podman of its own, unless DOCKER_HOST names an engine, and for `slurm` a cluster of one node.
 * There is nothing in the place of a cluster of Kubernetes: `kubernetes` needs your own. A kind that does not work here is left out, and one that fails, or is interrupted, loses nothing of what was
 * measured before: lines at the end say which and why.
 * bench/iteration.ts compares an iteration with its requests alone.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { SandboxBackend } from '../activities/sandbox/backend.ts';
import { openBackend } from '../activities/sandbox/backends.ts';
import { HostSandboxes } from '../activities/sandbox/host-sandboxes.ts';
import { loadAgent, type Agent } from '../activities/sandbox/load-agent.ts';
import { startsOfHost } from '../activities/sandbox/starts.ts';
import { WarmSandboxes } from '../activities/sandbox/warm/warm-sandboxes.ts';
import { runAgentProcess } from '../activities/sandbox/run-agent-process.ts';
import { table } from '../cli/show/table.ts';
import { EXIT } from '../cli/exit.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { TrialgateError } from '../core/errors.ts';
import { SANDBOX_KINDS, type SandboxKind } from '../core/run-config/sandbox.ts';
import { noPodman, startPodman } from '../tests/support/harness/podman.ts';
import { taskWith, temporaryHome } from '../tests/support/harness/sandbox-fixtures.ts';
import { noSlurm, startSlurm } from '../tests/support/harness/slurm.ts';
import { until } from '../tests/support/harness/until.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';
import { listenForCalls } from './starts/calls.ts';
import { eachKind } from './each-kind.ts';
import { allEnded, inTurns } from './starts/in-turns.ts';
import { controlGroups, leftOf, memoryOf, processesOf, type Left } from './starts/left.ts';

const options = optionsOf(import.meta.url, {
  trials: 1000,
  'at-once': 8,
  burst: 64,
  kills: 200,
  kinds: SANDBOX_KINDS.join(','),
  json: false,
});
const kinds = options.kinds.split(',').map((name) => {
  const kind = SANDBOX_KINDS.find((each) => each === name);
  if (kind === undefined)
    throw new TrialgateError('bad_input', `--kinds: there is no kind ${name}: ${SANDBOX_KINDS.join(', ')}`);
  return kind;
});
const signal = shutdownSignal();
const IDLE = 8;

/** The milliseconds of one trial, each from the moment at which it was asked for. */
type Times = { opened: number; first: number; ended: number };
type Row = { kind: string; start: string; firstEver: number; perSecond: number; times: Times[]; lastOfBurst: number };

await using stack = new AsyncDisposableStack();
const calls = stack.use(await listenForCalls());
const progress = (line: string) => console.error(`${new Date().toISOString().slice(11, 19)} ${line}`);

type Trial = (trialId: string) => Promise<{ opened: number }>;

async function timed(trial: Trial, trialId: string): Promise<Times> {
  const asked = performance.now();
  const { opened } = await trial(trialId);
  return { opened: opened - asked, first: calls.firstOf(trialId) - asked, ended: performance.now() - asked };
}

/** `ready` is awaited before each part: with it, the part finds all that is started before trials ask for it. */
async function measure(kind: string, start: string, trial: Trial, ready?: () => Promise<unknown>): Promise<Row> {
  progress(`${kind}, ${start}`);
  const name = `${kind}-${start}`;
  const firstEver = await timed(trial, `${name}-first`);
  const times: Times[] = [];
  await ready?.();
  const begin = performance.now();
  await inTurns(options.trials, { atOnce: options['at-once'], signal }, async (index) => {
    times.push(await timed(trial, `${name}-${index}`));
  });
  const perSecond = (options.trials / (performance.now() - begin)) * 1000;
  await ready?.();
  calls.holdUntil(options.burst);
  const burst = await allEnded(
    Array.from({ length: options.burst }, (_, index) => timed(trial, `${name}-burst-${index}`)),
    () => calls.holdUntil(0),
  );
  signal.throwIfAborted();
  return {
    kind,
    start,
    firstEver: firstEver.first,
    perSecond,
    times,
    lastOfBurst: Math.max(...burst.map(({ first }) => first)),
  };
}

const agentNamed = (name: string): Promise<Agent> =>
  loadAgent(fileURLToPath(new URL(`./starts/agent/${name}.yaml`, import.meta.url)));

type Host = { backend: SandboxBackend; home: string; sandboxes: HostSandboxes; warm: WarmSandboxes | null };

async function hostOf(kind: SandboxKind, home: string, count = 0): Promise<Host> {
  const warm = count > 0 ? new WarmSandboxes({ home, count, starts: startsOfHost() }) : null;
  return { backend: await openBackend({ kind }), home, warm, sandboxes: new HostSandboxes(home, Infinity, { warm }) };
}

/** Runs trials as a worker does: opens a sandbox with the task's files, runs the agent in it, removes it. */
async function trialIn({ backend, home, sandboxes }: Host, agent: Agent): Promise<Trial> {
  const task = await taskWith(home, 'true');
  return async (trialId) => {
    const key = { trialId, attempt: 1 };
    const way = { gateway: calls.url };
    await sandboxes.open(key, { backend, task, network: null, verifier: null, image: null, way }, signal);
    const opened = performance.now();
    const result = await sandboxes.use(key, ({ sandbox }) =>
      runAgentProcess({
        agent,
        task,
        sandbox,
        backend,
        trialId,
        gateway: calls.url,
        network: 'gateway',
        apiKey: 'a key',
        model: 'policy',
        signal,
      }),
    );
    await sandboxes.close(key);
    if (result?.ending !== 'done') throw new Error(`${backend.kind}: ${result?.reason ?? 'the sandbox is gone'}`);
    return { opened };
  };
}

/** An agent that makes its call and then does nothing. */
const idleAgent = (agent: Agent): Agent => ({
  ...agent,
  command: ['bash', '-c', '"$@"; sleep 86399', 'bash', ...agent.command],
});

/** Returns the MiB of an idle sandbox with everything that the host runs for it. */
async function idleMemory(host: Host, agent: Agent): Promise<number> {
  const controller = new AbortController();
  const task = await taskWith(host.home, 'true');
  const names = Array.from({ length: IDLE }, (_, index) => `${host.backend.kind}-idle-${index}`);
  const running = names.map(async (trialId) => {
    const key = { trialId, attempt: 1 };
    await host.sandboxes.open(key, { ...host, task, network: null, verifier: null, image: null }, signal);
    await host.sandboxes.use(key, ({ sandbox, backend }) =>
      runAgentProcess({
        ...{
          agent: idleAgent(agent),
          task,
          sandbox,
          backend,
          trialId,
          gateway: calls.url,
          network: 'gateway' as const,
        },
        ...{ apiKey: 'a key', model: 'policy', signal: AbortSignal.any([signal, controller.signal]) },
      }),
    );
    await host.sandboxes.close(key);
  });
  try {
    await until(() => names.every((name) => !Number.isNaN(calls.firstOf(name))), 120_000);
    await sleep(1000);
    return memoryOf(await processesOf(host.backend, host.home)) / IDLE;
  } finally {
    controller.abort();
    await Promise.allSettled(running);
  }
}

/** Ends sandboxes at random moments, by a cancel or by a removal. */
async function killAtRandom({ backend, home, sandboxes }: Host, agent: Agent): Promise<void> {
  const task = await taskWith(home, 'true');
  await inTurns(options.kills, { atOnce: options['at-once'], signal }, async (index) => {
    const key = { trialId: `kill-${index}`, attempt: 1 };
    const controller = new AbortController();
    const life = (async () => {
      await sandboxes.open(key, { backend, task, network: null, verifier: null, image: null }, controller.signal);
      await sandboxes.use(key, ({ sandbox }) =>
        runAgentProcess({
          ...{ agent: idleAgent(agent), task, sandbox, backend, trialId: key.trialId, gateway: calls.url },
          ...{ network: 'gateway', apiKey: 'a key', model: 'policy', signal: controller.signal },
        }),
      );
    })().catch(() => {});
    await sleep(Math.random() * 1500);
    if (index % 2 === 0) controller.abort();
    else await backend.destroy(home, `${key.trialId}.1`);
    controller.abort();
    await life;
    await sandboxes.close(key);
    await backend.destroy(home, `${key.trialId}.1`);
  });
}

/** Starts what a kind needs and this machine does not have. Throws when it cannot run here. */
async function startKind(kind: SandboxKind): Promise<void> {
  const mustHave = (missing: string | null): void => {
    if (missing !== null) throw new TrialgateError('missing_prerequisite', missing);
  };
  if (kind === 'container' && process.env.DOCKER_HOST === undefined) {
    mustHave(noPodman());
    process.env.DOCKER_HOST = stack.use(await startPodman(signal)).host;
  }
  if (kind === 'slurm') {
    mustHave(noSlurm());
    process.env.PATH = `${stack.use(await startSlurm(signal)).bin}:${process.env.PATH}`;
  }
  await openBackend({ kind }, signal);
}

const at = (values: number[], share: number): string => {
  const sorted = values.toSorted((a, b) => a - b);
  return (sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN).toFixed(0);
};

const command = await agentNamed('command');
const rows: Row[] = [];
const idle: { kind: string; mib: number }[] = [];
const left: ({ kind: string; after: string } & Left)[] = [];
const python = (await openBackend()).host.python.executable;
rows.push(
  await measure('none', 'cold', async (trialId) => {
    const opened = performance.now();
    const file = fileURLToPath(new URL('./starts/agent/agent.py', import.meta.url));
    await promisify(execFile)(python, ['-I', '-S', file, `${calls.url}/${trialId}/v1`]);
    return { opened };
  }),
);
async function measureKind(kind: SandboxKind): Promise<void> {
  const groups = await controlGroups();
  await using folder = await temporaryHome();
  const host = await hostOf(kind, folder.home);
  rows.push(await measure(kind, 'cold', await trialIn(host, command)));
  if (host.backend.capabilities.forks) {
    // The warm process stays for later trials. Nothing of it counts as left.
    await using own = await temporaryHome();
    const agent = await agentNamed('function');
    rows.push(await measure(kind, 'warm', await trialIn(await hostOf(kind, own.home), agent)));
  }
  if (host.backend.startAhead) {
    const pooled = await hostOf(kind, host.home, options.burst);
    const full = () => until(() => pooled.warm?.size === options.burst, 600_000);
    try {
      rows.push(await measure(kind, 'pool', await trialIn(pooled, command), full));
    } finally {
      await pooled.warm?.close();
    }
  }
  idle.push({ kind, mib: await idleMemory(host, command) });
  await killAtRandom(host, command);
  left.push({ kind, after: `${options.kills} random kills`, ...(await leftOf(host.backend, host.home, groups)) });
}
const { incomplete, hasFailed } = await eachKind(
  kinds,
  { start: startKind, measure: measureKind },
  { signal, report: progress },
);

if (options.json) console.log(JSON.stringify({ ...provenance(), options, rows, idle, left, incomplete }, null, 1));
else {
  const { trials, 'at-once': atOnce, burst, kills } = options;
  console.log(JSON.stringify({ ...provenance(), trials, at_once: atOnce, burst, kills }, null, 2));
  const header = [
    ...['sandbox', 'start', 'trials/s', 'opened p50 ms', 'first call p50 ms', 'p99', 'whole p50', 'p99'],
    ...['the very first', `last of ${burst} at once, s`],
  ];
  const shown = rows.map(({ kind, start, perSecond, times, firstEver, lastOfBurst }) => {
    const of = (key: keyof Times, share: number) =>
      at(
        times.map((each) => each[key]),
        share,
      );
    const middle = [of('opened', 0.5), of('first', 0.5), of('first', 0.99), of('ended', 0.5), of('ended', 0.99)];
    return [kind, start, perSecond.toFixed(1), ...middle, firstEver.toFixed(0), (lastOfBurst / 1000).toFixed(1)];
  });
  console.log(`\n${table(header, shown)}`);
  console.log(
    `\n${table(
      ['sandbox', 'MiB of an idle one'],
      idle.map(({ kind, mib }) => [kind, mib.toFixed(1)]),
    )}`,
  );
  const [first] = left;
  if (first)
    console.log(
      `\n${table(
        Object.keys(first),
        left.map((each) => Object.values(each).map(String)),
      )}`,
    );
  if (incomplete.length > 0) console.log(`\n${incomplete.join('\n')}`);
}
signal.throwIfAborted();
if (hasFailed) process.exitCode = EXIT.failed;
