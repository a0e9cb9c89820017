import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('rm <run...>'), ['home'])
    .description(
      'delete runs that have ended, with their trials, calls, checkpoints, batches, schedules and histories in Temporal; this cannot be undone',
    )
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate export first ./first-model\n  $ npx trialgate rm first second',
    )
    .action(async (runIds: string[], _options: unknown, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ removeRun }, { removeLoggerStates }, { withDeployment }] = await Promise.all([
        import('../disk/remove-run.ts'),
        import('../log/logger-state.ts'),
        import('../run/connect.ts'),
      ]);
      await withDeployment(config, async (connected) => {
        for (const runId of runIds) {
          console.log(await removeRun(connected, runId));
          removeLoggerStates(config.home, runId);
        }
      });
    });
}
