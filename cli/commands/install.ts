import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('install'), ['device', 'python'])
    .description(
      'install the Python environment, the small model and bubblewrap into .trialgate; finished steps are kept',
    )
    .option(
      '--loggers',
      'install the libraries of loggers instead: TensorBoard, mlflow, Weights & Biases, trackio, OpenTelemetry',
    )
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate install\n  $ npx trialgate install --loggers\n  $ npx trialgate install --device cuda --python /usr/bin/python3.12',
    )
    .action(async (options: { loggers?: boolean }, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ INSTALL_LOG, installWithProgress }, { installLoggers }, { shutdownSignal }] = await Promise.all([
        import('../install/install.ts'),
        import('../install/loggers.ts'),
        import('../signals.ts'),
      ]);
      if (options.loggers) {
        console.log(`the loggers are installed in ${await installLoggers(INSTALL_LOG, shutdownSignal())}`);
        return;
      }
      await installWithProgress(
        { device: config.device, python: config.python, retriesOptional: true },
        shutdownSignal(),
      );
      console.log('everything is installed');
    });
}
