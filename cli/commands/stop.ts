import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('stop <run>'), ['home'])
    .description('end a run after its current iteration')
    .addHelpText('after', '\nExamples:\n  $ npx trialgate stop first')
    .action(async (runId: string, _options: unknown, command: Command) => {
      const { config } = await settingsOf(command);
      const { operate } = await import('../run/operate.ts');
      await operate(config, runId, 'stop');
    });
}
