import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('open [run-or-trial]'), ['home', 'database_url', 'gateway_url'])
    .description(
      'print the address of the page on runs, or of its view of a run or a trial; the address has the admin key',
    )
    .option('--read-only', 'with the read-only key (read_key), for people who shall change nothing')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate open\n  $ npx trialgate open first\n  $ npx trialgate open first-0.1-3-5\n  $ npx trialgate open first --read-only',
    )
    .action(async (id: string | undefined, { readOnly = false }: { readOnly?: boolean }, command: Command) => {
      const { config } = await settingsOf(command);
      const { pageAddress } = await import('../run/page-address.ts');
      console.log(await pageAddress(config, id, { readOnly }));
    });
}
