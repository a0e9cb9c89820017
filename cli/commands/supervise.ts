import { Option, type Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('supervise'))
    .description(
      'start everything and keep it running in the foreground until a signal; `up` runs this in the background',
    )
    .addHelpText('after', '\nExample:\n  $ npx trialgate supervise')
    // `up` says that its output is a file of the deployment.
    .addOption(new Option('--into-file').hideHelp())
    .action(async ({ intoFile = false }: { intoFile?: boolean }, command: Command) => {
      const { config, configuredModel, origins } = await settingsOf(command);
      const [
        { runSupervisorInForeground, stackLog },
        { processLog, logFormatOf, fileLogFormatOf },
        { shutdownSignal },
        { Interrupted },
      ] = await Promise.all([
        import('../supervisor/supervise.ts'),
        import('../process-log.ts'),
        import('../signals.ts'),
        import('../exit.ts'),
      ]);
      const signal = shutdownSignal();
      const format = intoFile ? fileLogFormatOf(config) : logFormatOf(config);
      const onChange = stackLog(processLog('supervisor', format));
      await runSupervisorInForeground({ config, configuredModel, origins, onChange }, signal).catch(
        (error: unknown) => {
          if (!(error instanceof Interrupted)) throw error;
        },
      );
    });
}
