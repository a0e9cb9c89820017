import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('fork <run@version> [settings...]'), ['home'])
    .description(
      "start a new run from another run's policy version and optimizer state, with that run's settings except the given ones",
    )
    .option('--run <id>', "name of the new run (default: the other run's name and the time)")
    .option('--iterations <n>', "number of iterations (default: the other run's)")
    .option('--no-check', 'start also when an engine has another model, or when no call of the run could be trained on')
    .option('--detach', 'start it and return')
    .option('--json', 'print the run record at the end')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate fork first@2\n  $ npx trialgate fork first@2 --run second --iterations 5 optim.lr=1e-5 seed=7',
    )
    .action(async (policy: string, settings: string[], options: Options, command: Command) => {
      const { config } = await settingsOf(command);
      const [
        { forkRun },
        { connectionsOf },
        { defaultRunName, parsePolicy },
        { parseChanges },
        { watchAndPrint, wholeNumber },
        { withDeployment },
        { shutdownSignal },
      ] = await Promise.all([
        import('../run/fork-run.ts'),
        import('../config/connections.ts'),
        import('../run/name-run.ts'),
        import('../run/parse-changes.ts'),
        import('../run/train-file.ts'),
        import('../run/connect.ts'),
        import('../signals.ts'),
      ]);
      const from = parsePolicy(policy);
      const runId = options.run ?? defaultRunName(from.runId);
      const changes = {
        ...parseChanges(settings),
        ...(options.iterations && { iterations: wholeNumber(options.iterations, '--iterations') }),
      };
      const signal = shutdownSignal();
      await withDeployment(config, async (connected) => {
        const { check } = options;
        console.error(await forkRun(connected, from, runId, changes, { check, relay: connectionsOf(config) }));
        if (!options.detach) await watchAndPrint(connected, runId, options, signal);
      });
    });
}

type Options = {
  check: boolean;
  run?: string;
  iterations?: string;
  detach?: boolean;
  json?: boolean;
};
