import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('down'), ['home'])
    .description('stop all processes of the deployment; data stays, and runs go on after `up`')
    .addHelpText('after', '\nExample:\n  $ npx trialgate down')
    .action(async (_options: unknown, command: Command) => {
      const asked = await settingsOf(command);
      const { config } = asked;
      const [{ down }, { runsAtStop, howRunsGoOn }, { livingState }] = await Promise.all([
        import('../supervisor/down.ts'),
        import('../supervisor/runs-at-stop.ts'),
        import('../supervisor/state.ts'),
      ]);
      const state = livingState(config.home);
      const open = state === null ? [] : await runsAtStop(config);
      const ended = await down(config.home);
      console.log(ended.length ? `stopped ${ended.join(', ')}` : `nothing was running in ${config.home}`);
      for (const line of state === null ? [] : howRunsGoOn(asked, state, open)) console.log(line);
    });
}
