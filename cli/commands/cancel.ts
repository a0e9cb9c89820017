import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('cancel <run>'), ['home'])
    .description('end a run now: its trials are cut, its engines are released, and what is finished is kept')
    .addHelpText('after', '\nExamples:\n  $ npx trialgate cancel first\n  $ npx trialgate resume first')
    .action(async (runId: string, _options: unknown, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ cancelRun }, { withDeployment }] = await Promise.all([
        import('../run/cancel-run.ts'),
        import('../run/connect.ts'),
      ]);
      console.log(await withDeployment(config, (connected) => cancelRun(connected, runId)));
    });
}
