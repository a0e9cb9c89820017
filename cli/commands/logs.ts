import { Option, type Command } from 'commander';
import { LOG_LEVELS, type LogLevel } from '../../core/log-record.ts';
import { addSettings, settingsOf } from '../options.ts';

type Options = { lines: string; follow?: boolean; run?: string; level?: LogLevel; json?: boolean };

export function register(root: Command): void {
  addSettings(root.command('logs'), ['home'])
    .argument(
      '[component-or-run]',
      'postgres, temporal, vllm, gateway (all gateways; gateway-2: only that one), …, supervisor, install; or a run: the lines about it of all components (default: all)',
    )
    .description("print the components' logs, in the order of time")
    .addOption(new Option('-n, --lines <count>', 'number of last lines of each log').default('40'))
    .option('-f, --follow', 'print new lines until interrupted')
    .option('--run <run>', 'lines about this run, also with a component; with -f also one that has no line yet')
    .addOption(new Option('--level <level>', 'lines of this level and of more severe ones').choices(LOG_LEVELS))
    .option('--json', 'print each line as a record: time, level, process, message, run_id, trial_id, …')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate logs gateway -f\n  $ npx trialgate logs vllm -n 200\n  $ npx trialgate logs RUN -f\n  $ npx trialgate logs RUN --level warning --json',
    )
    .action(async (name: string | undefined, options: Options, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ showLogs }, { shutdownSignal }] = await Promise.all([
        import('../supervisor/show-logs.ts'),
        import('../signals.ts'),
      ]);
      const { lines, run, level, follow = false, json = false } = options;
      await showLogs(config.home, { name, run, lines, follow, level, json }, shutdownSignal());
    });
}
