import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('resume <run>'), ['home'])
    .description('continue a run that is paused, blocked, failed or cancelled; finished trials are kept')
    .option('--detach', 'return at once')
    .addHelpText('after', '\nExamples:\n  $ npx trialgate resume first')
    .action(async (runId: string, options: { detach?: boolean }, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ resumeRun }, { withDeployment }, { watchRun }, { shutdownSignal }] = await Promise.all([
        import('../run/resume-run.ts'),
        import('../run/connect.ts'),
        import('../run/watch-run.ts'),
        import('../signals.ts'),
      ]);
      const signal = shutdownSignal();
      await withDeployment(config, async (connected) => {
        console.error(await resumeRun(connected, runId));
        if (!options.detach) await watchRun(connected, runId, signal);
      });
    });
}
