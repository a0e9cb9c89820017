import type { Command } from 'commander';
import type { readQueue } from '../../store/queries/pool-queue.ts';
import type { Deployment } from '../config/schema.ts';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('status'), ['home'])
    .description(
      'print each process with its address, uptime and restarts, and what the run with the engines does; warn of suspicious infrastructure errors and of calls that cannot be trained on because their form is forced; exit code 4 when a process does not run',
    )
    .option('--json', 'as JSON')
    .addHelpText('after', '\nExamples:\n  $ npx trialgate status\n  $ npx trialgate status --json')
    .action(async (options: { json?: boolean }, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ currentState, printStatus }, { EXIT }] = await Promise.all([
        import('../supervisor/print.ts'),
        import('../exit.ts'),
      ]);
      const state = currentState(config.home);
      const { warnings: ofStore, queue } =
        state?.status === 'ready' ? await readStore(config) : { warnings: [], queue: null };
      const { loggerWarnings } = await import('../log/logger-state.ts');
      const warnings = [...ofStore, ...loggerWarnings(config.home)];
      const run = queue?.owner ? await readRunStatus(config, queue.owner, queue.waiting.length > 0) : null;
      if (options.json) console.log(JSON.stringify(state && { ...state, warnings, queue, ...run?.data }, null, 2));
      else if (state) {
        printStatus(state);
        const { diskLine } = await import('../disk/disk-use.ts');
        if (queue !== null) console.log(queueLine(queue));
        for (const line of run?.lines ?? []) console.log(line);
        console.log(await diskLine(config.home));
      } else {
        const { otherInstall } = await import('../install/other-install.ts');
        console.log(`nothing was started in ${config.home} yet: ${otherInstall() ?? 'npx trialgate up'}`);
      }
      if (!options.json) for (const warning of warnings) console.log(`WARNING: ${warning}`);
      if (state?.status !== 'ready' || state.components.some(({ status }) => status !== 'ready'))
        process.exitCode = EXIT.failed;
    });
}

/** Reads the warnings of the runs under way, and who waits for engines. It does not wait long for them, because a status must be quick. */
async function readStore(config: Deployment): Promise<{ warnings: string[]; queue: Queue | null }> {
  const [{ openDatabase }, { connectionsOf }, { readWarnings }, { readQueue }] = await Promise.all([
    import('../../store/database.ts'),
    import('../config/connections.ts'),
    import('../show/warnings.ts'),
    import('../../store/queries/pool-queue.ts'),
  ]);
  const db = openDatabase(connectionsOf(config).databaseUrl, {
    maxConnections: 2,
    settings: '-c statement_timeout=3000',
  });
  try {
    return { warnings: await readWarnings(db), queue: await readQueue(db).catch(() => null) };
  } finally {
    await db.$client.end();
  }
}

/** Asks the run that has the engines what it does. Null: it does not answer. */
async function readRunStatus(config: Deployment, runId: string, isAwaited: boolean) {
  const [
    { queryStatus },
    { engineHolder, holderText },
    { statusLine },
    { trialWaitsLine },
    { readEngines },
    { memoryShortage },
  ] = await Promise.all([
    import('../run/query-status.ts'),
    import('../run/engine-holder.ts'),
    import('../run/run-progress.ts'),
    import('../run/trial-waits.ts'),
    import('../engines/engines.ts'),
    import('../../activities/sandbox/memory-gate.ts'),
  ]);
  const [status, engines] = await Promise.all([
    queryStatus(config, runId, { withTrials: true }),
    readEngines(config, () => {}).catch(() => null),
  ]);
  if (status === null) return null;
  const calls = engines && engines.reduce((sum, { calls_in_flight: ofOne }) => sum + ofOne, 0);
  const shortage = config.wait_for_memory ? memoryShortage(false) : null;
  const waits = status.trial_waits && trialWaitsLine(status.trial_waits, calls, shortage);
  const holder = isAwaited ? engineHolder(runId, status) : null;
  return {
    data: { run: status, calls_in_flight: calls, memory_shortage: shortage },
    lines: [statusLine(status), ...(holder ? [`others wait: ${holderText(holder)}`] : []), ...(waits ? [waits] : [])],
  };
}

type Queue = Awaited<ReturnType<typeof readQueue>>;

function queueLine({ owner, waiting, blocked }: Queue): string {
  const names = waiting.map(({ runId, since }) => `${runId} (since ${since.toISOString().slice(11, 19)} UTC)`);
  return [
    owner === null ? 'engines: no run has them' : `engines: run ${owner} has them`,
    ...(names.length === 0 ? [] : [`waiting: ${names.join(', ')}`]),
    ...(blocked.length === 0 ? [] : [`blocked, without engines: ${blocked.join(', ')}`]),
  ].join('; ');
}
