import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('pause <run>'), ['home'])
    .description('let running trials end and start nothing new until `resume`, or until a day has passed')
    .option('--for <duration>', 'go on automatically after this time, such as 30m; at most 30 days')
    .addHelpText('after', '\nExamples:\n  $ npx trialgate pause first\n  $ npx trialgate pause first --for 30m')
    .action(async (runId: string, options: { for?: string }, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ pauseRun }, { withDeployment }, { secondsOf }] = await Promise.all([
        import('../run/pause-run.ts'),
        import('../run/connect.ts'),
        import('../duration.ts'),
      ]);
      const seconds = options.for === undefined ? undefined : secondsOf(options.for);
      console.log(await withDeployment(config, (connected) => pauseRun(connected, runId, seconds)));
    });
}
