import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('quickstart'))
    .description('install, start everything, train a small model on the bundled tasks, print the table, stop')
    .option('--iterations <n>', 'number of iterations', '3')
    .option('--json', 'print the run record instead of the table')
    .addHelpText('after', '\nExamples:\n  $ npm run quickstart\n  $ npm run quickstart -- --iterations 10')
    .action(async (options: { iterations: string; json?: boolean }, command: Command) => {
      const asked = await settingsOf(command);
      const [{ quickstart }, { shutdownSignal }] = await Promise.all([
        import('../run/quickstart.ts'),
        import('../signals.ts'),
      ]);
      await quickstart(asked, options, shutdownSignal());
    });
}
