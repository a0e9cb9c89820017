import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('resume <run>'), ['home'])
    .description(
      'continue a run that is paused, blocked, failed or cancelled, or watch one that is under way; finished trials are kept',
    )
    .option(
      '--retry-failed',
      'let the trials of the open take that ended as timed_out, agent_error or verifier_error run again, after a repair',
    )
    .option('--detach', 'return at once')
    .addHelpText('after', '\nExamples:\n  $ npx trialgate resume first\n  $ npx trialgate resume first --retry-failed')
    .action(async (runId: string, options: { retryFailed?: boolean; detach?: boolean }, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ resumeRun }, { withDeployment }, { watchAndPrint }, { shutdownSignal }, { connectionsOf }] =
        await Promise.all([
          import('../run/resume-run.ts'),
          import('../run/connect.ts'),
          import('../run/train-file.ts'),
          import('../signals.ts'),
          import('../config/connections.ts'),
        ]);
      const signal = shutdownSignal();
      await withDeployment(config, async (connected) => {
        const { retryFailed = false } = options;
        const { answer, goesOn } = await resumeRun(connected, runId, { retryFailed, relay: connectionsOf(config) });
        const isWatched = goesOn && !options.detach;
        console.error(isWatched ? `${answer}; Ctrl-C ends only this watching` : answer);
        if (isWatched) await watchAndPrint(connected, runId, {}, signal);
      });
    });
}
