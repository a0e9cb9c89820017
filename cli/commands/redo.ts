import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('redo <run>'), ['home'])
    .description('run the last iteration again as a new take; the rows of the old take stay and are marked superseded')
    .option('--detach', 'return at once')
    .addHelpText('after', '\nExamples:\n  $ npx trialgate redo first')
    .action(async (runId: string, options: { detach?: boolean }, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ redoRun }, { connectionsOf }, { withDeployment }, { watchAndPrint }, { shutdownSignal }] =
        await Promise.all([
          import('../run/redo-run.ts'),
          import('../config/connections.ts'),
          import('../run/connect.ts'),
          import('../run/train-file.ts'),
          import('../signals.ts'),
        ]);
      const signal = shutdownSignal();
      await withDeployment(config, async (connected) => {
        const said = await redoRun(connected, runId, connectionsOf(config));
        console.error(options.detach ? said : `${said}; Ctrl-C ends only this watching`);
        if (!options.detach) await watchAndPrint(connected, runId, {}, signal);
      });
    });
}
