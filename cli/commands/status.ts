import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('status'), ['home'])
    .description('what runs: process, address, since when, restarts; exit code 4 when something does not')
    .option('--json', 'as JSON')
    .addHelpText('after', '\nExamples:\n  $ npx trialgate status\n  $ npx trialgate status --json')
    .action(async (options: { json?: boolean }, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ currentState, printStatus }, { EXIT }] = await Promise.all([import('../supervisor/print.ts'), import('../exit.ts')]);
      const state = currentState(config.home);
      if (options.json) console.log(JSON.stringify(state, null, 2));
      else if (state) printStatus(state);
      else console.log(`nothing was started in ${config.home} yet: npx trialgate up`);
      if (state?.status !== 'ready' || state.components.some(({ status }) => status !== 'ready')) process.exitCode = EXIT.failed;
    });
}
