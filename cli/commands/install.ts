import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('install'), ['device', 'python'])
    .description(
      'install the Python environment, the small model and bubblewrap into .trialgate; finished steps are kept',
    )
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate install\n  $ npx trialgate install --device cuda --python /usr/bin/python3.12',
    )
    .action(async (_options: unknown, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ installWithProgress }, { shutdownSignal }] = await Promise.all([
        import('../install/install.ts'),
        import('../signals.ts'),
      ]);
      await installWithProgress(
        { device: config.device, python: config.python, retriesOptional: true },
        shutdownSignal(),
      );
      console.log('everything is installed');
    });
}
