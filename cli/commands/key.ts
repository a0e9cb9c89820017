import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('key <run>'), ['home', 'gateway_url'])
    .description('print what your program needs to run the agents of a run with `rollouts: external`')
    .option('--json', 'print JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  $ export $(npx trialgate key first)    set TRIALGATE_RUN, TRIALGATE_URL and TRIALGATE_RUN_KEY\n  $ npx trialgate key first --json',
    )
    .action(async (runId: string, options: { json?: boolean }, command: Command) => {
      const { config } = await settingsOf(command);
      const { runAccess } = await import('../run/run-access.ts');
      const access = runAccess(config, runId);
      console.log(
        options.json
          ? JSON.stringify(access)
          : `TRIALGATE_RUN=${access.run}\nTRIALGATE_URL=${access.url}\nTRIALGATE_RUN_KEY=${access.key}`,
      );
    });
}
