import type { Command } from 'commander';
import type { Deployment } from '../config/schema.ts';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('status'), ['home'])
    .description(
      'print each process with its address, uptime and restarts; warn of suspicious infrastructure errors and of calls that cannot be trained on because their form is forced; exit code 4 when a process does not run',
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
      const warnings = state?.status === 'ready' ? await warningsOf(config) : [];
      if (options.json) console.log(JSON.stringify(state && { ...state, warnings }, null, 2));
      else if (state) {
        printStatus(state);
        const { diskLine } = await import('../disk/disk-use.ts');
        console.log(await diskLine(config.home));
      } else console.log(`nothing was started in ${config.home} yet: npx trialgate up`);
      if (!options.json) for (const warning of warnings) console.log(`WARNING: ${warning}`);
      if (state?.status !== 'ready' || state.components.some(({ status }) => status !== 'ready'))
        process.exitCode = EXIT.failed;
    });
}

/** Returns the warnings of the runs under way. It does not wait long for them, because a status must be quick. */
async function warningsOf(config: Deployment): Promise<string[]> {
  const [{ openDatabase }, { connectionsOf }, { readWarnings }] = await Promise.all([
    import('../../store/database.ts'),
    import('../config/connections.ts'),
    import('../show/warnings.ts'),
  ]);
  const db = openDatabase(connectionsOf(config).databaseUrl, {
    maxConnections: 2,
    settings: '-c statement_timeout=3000',
  });
  try {
    return await readWarnings(db);
  } finally {
    await db.$client.end();
  }
}
