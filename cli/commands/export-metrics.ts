import type { Command } from 'commander';
import type { Database } from '../../store/database.ts';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('export-metrics <run>'), ['home', 'database_url'])
    .description(
      "write a run's metrics to loggers, trials as traces to mlflow, and spans to otel, also long after its end: what they do not have yet. Runs whose file names `loggers` need no such command",
    )
    .option('--to <logger...>', 'names, or `{name: mlflow, tracking_uri: URL}` (default: those of the run file)')
    .option('--follow', 'go on until the run has ended, and try again what fails')
    .addHelpText(
      'after',
      "\nExamples:\n  $ npx trialgate export-metrics first --to csv tensorboard\n  $ npx trialgate export-metrics first --to '{name: mlflow, tracking_uri: http://127.0.0.1:5000}' --follow",
    )
    .action(async (runId: string, options: { to?: string[]; follow?: boolean }, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ exportMetrics }, { withRunningStore, withStore }, { shutdownSignal }] = await Promise.all([
        import('../log/export-metrics.ts'),
        import('../run/connect.ts'),
        import('../signals.ts'),
      ]);
      const { to, follow = false } = options;
      // One connection has the locks of all loggers.
      const write = (db: Database) =>
        exportMetrics(db, config.home, { runId, ...(to ? { to } : {}), follow }, shutdownSignal());
      // A run goes on only while its deployment runs.
      await (follow ? withRunningStore(config, write, 5) : withStore(config, write, 5));
    });
}
