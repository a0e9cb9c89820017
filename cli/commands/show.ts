import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('show [run-or-trial]'), ['home', 'database_url'])
    .description("print a run's iterations or a trial's transcript; without a name, list all runs")
    .option('--json', 'as JSON; docs/show.md documents it')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate show\n  $ npx trialgate show first --json\n  $ npx trialgate show first-0.1-3-5',
    )
    .action(async (id: string | undefined, options: { json?: boolean }, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ show }, { withStore }, { queryStatus }] = await Promise.all([
        import('../show/show.ts'),
        import('../run/connect.ts'),
        import('../run/query-status.ts'),
      ]);
      console.log(
        await withStore(config, (db, isStopped) =>
          show(db, id, options.json ?? false, (runId) => queryStatus(config, runId), isStopped),
        ),
      );
    });
}
