import { randomUUID } from 'node:crypto';
import type { Command, SandboxBackend } from '../../activities/sandbox/backend.ts';
import { copyRepository, createSandbox } from '../../activities/sandbox/create-sandbox.ts';
import { destroySandbox } from '../../activities/sandbox/destroy-sandbox.ts';
import type { Sandbox } from '../../activities/sandbox/empty-sandbox.ts';
import { verifierName } from '../../activities/sandbox/names.ts';
import { agentCommand } from '../../activities/sandbox/run-agent-process.ts';
import { testsCommand } from '../../activities/sandbox/verify.ts';
import type { View } from '../../activities/sandbox/view.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { prepareTryout, type Tryout, type TryoutPlace } from './try-agent.ts';

/** What one program of a trial would see of this machine. */
export type ProgramView = View & {
  kind: string;
  statement: string;
  /** The engine's id of the image; null: it has this machine's programs. */
  image: string | null;
  /** The folder in which it starts. */
  folder: string;
  /** True when it would be a fork of a process that has imported its module. */
  isWarm: boolean;
};
export type TrialView = {
  task: string;
  agent: string;
  agentSandbox: ProgramView;
  /** Null for a row of data, which reward functions judge. */
  verifierSandbox: ProgramView | null;
};

/** Stands for the key of a trial that was never opened. */
const KEY = '<the trial’s key>';

/**
 * Returns what the agent and the tests of a trial would be given of this machine. Their sandboxes are made as for a trial, explained, and
 * removed; nothing runs in them.
 * @throws TrialgateError `bad_input` for a wrong task or agent
 */
export async function explainTrial(
  tryout: Pick<Tryout, 'task' | 'agent'> & { config: RunConfig },
  place: Pick<TryoutPlace, 'home' | 'gatewayUrl' | 'unsandboxed' | 'report'>,
  signal: AbortSignal,
): Promise<TrialView> {
  const { home, gatewayUrl } = place;
  const { task, agent, environment, network, image, backend, verifier } = await prepareTryout(tryout, place, signal);
  const trialId = `explain-${randomUUID().slice(0, 8)}`;
  const key = { home, trialId, attempt: 1, backend };
  try {
    const sandbox = await createSandbox({ ...key, task, image, signal });
    const command = await agentCommand({
      agent,
      task,
      sandbox,
      backend,
      environment,
      trialId,
      gateway: gatewayUrl,
      network,
      apiKey: KEY,
      model: 'policy',
      signal,
    });
    const agentSandbox = await programView(backend, sandbox, command);
    if (task.kind === 'row') return { task: task.name, agent: agent.name, agentSandbox, verifierSandbox: null };
    const ofTests = verifier ?? { backend, image };
    const clean = await ofTests.backend.start({ home, name: verifierName(sandbox.name), image: ofTests.image });
    clean.mounts = await copyRepository(task, clean, ofTests.backend, signal);
    const tests = testsCommand(task, clean, ofTests.backend, signal);
    const verifierSandbox = await programView(ofTests.backend, clean, tests);
    return { task: task.name, agent: agent.name, agentSandbox, verifierSandbox };
  } finally {
    await destroySandbox({ ...key, verifier: verifier?.backend });
  }
}

async function programView(backend: SandboxBackend, sandbox: Sandbox, command: Command): Promise<ProgramView> {
  const { env, ...view } = await backend.explain(sandbox, command);
  return {
    kind: backend.kind,
    statement: backend.statement,
    image: sandbox.image?.id ?? null,
    folder: command.cwd,
    isWarm: command.forkServer !== undefined,
    ...view,
    env: Object.fromEntries(Object.entries(env).map(([name, value]) => [name, shown(name, value)])),
  };
}

/** A task's or an agent's file may set keys of other services. */
const SECRET = /key|token|secret|passw|credential/i;

const shown = (name: string, value: string): string =>
  SECRET.test(name) && !value.includes(KEY) && value !== '' ? '<hidden>' : value;
