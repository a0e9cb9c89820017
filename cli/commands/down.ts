import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('down'), ['home'])
    .description('stop all processes of the deployment; data stays')
    .addHelpText('after', '\nExample:\n  $ npx trialgate down')
    .action(async (_options: unknown, command: Command) => {
      const { config } = await settingsOf(command);
      const { down } = await import('../supervisor/down.ts');
      const ended = await down(config.home);
      console.log(ended.length ? `stopped ${ended.join(', ')}` : `nothing was running in ${config.home}`);
    });
}
