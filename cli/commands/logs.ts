import { Option, type Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('logs'), ['home'])
    .argument(
      '[component]',
      'postgres, temporal, vllm, gateway (all gateways; gateway-2: only that one), …, supervisor, install (default: all)',
    )
    .description("print the components' logs")
    .addOption(new Option('-n, --lines <count>', 'number of last lines of each log').default('40'))
    .option('-f, --follow', 'print new lines until interrupted')
    .addHelpText('after', '\nExamples:\n  $ npx trialgate logs gateway -f\n  $ npx trialgate logs vllm -n 200')
    .action(async (component: string | undefined, options: { lines: string; follow?: boolean }, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ showLogs }, { shutdownSignal }] = await Promise.all([
        import('../supervisor/show-logs.ts'),
        import('../signals.ts'),
      ]);
      await showLogs(
        config.home,
        { component, lines: options.lines, follow: options.follow ?? false },
        shutdownSignal(),
      );
    });
}
