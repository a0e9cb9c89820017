import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('extend <run> <trial> <duration>'), ['home'])
    .description('give one trial of a run more time, and its group with it')
    .addHelpText('after', '\nExamples:\n  $ npx trialgate extend first first-0.1-3-5 10m')
    .action(async (runId: string, trial: string, duration: string, _options: unknown, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ operate }, { secondsOf }] = await Promise.all([import('../run/operate.ts'), import('../duration.ts')]);
      await operate(config, runId, 'extend', { trial, seconds: secondsOf(duration) });
    });
}
