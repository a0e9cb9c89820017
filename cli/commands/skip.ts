import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('skip <run> <trial>'), ['home'])
    .description('end one trial of a run now: it is cancelled and not trained on')
    .addHelpText('after', '\nExamples:\n  $ npx trialgate skip first first-0.1-3-5')
    .action(async (runId: string, trial: string, _options: unknown, command: Command) => {
      const { config } = await settingsOf(command);
      const { operate } = await import('../run/operate.ts');
      await operate(config, runId, 'skip', { trial });
    });
}
