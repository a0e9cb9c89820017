import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('rescore <run>'), ['home'])
    .description('train on a finished iteration again under other reward weights, as a new run, without sampling')
    .requiredOption('--iteration <n>', 'the finished iteration')
    .requiredOption('--reward-weights <name=weight,…>', 'weights of named rewards; a reward without a weight counts 1')
    .option('--run <id>', "name of the new run (default: the other run's name and the time)")
    .option('--detach', 'start it and return')
    .option('--json', 'print the run record at the end')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate rescore first --iteration 3 --reward-weights tests=1,style=0.2 --run styled\n  $ npx trialgate evaluate styled@1\n  $ npx trialgate fork styled@1 --iterations 10',
    )
    .action(async (from: string, options: Options, command: Command) => {
      const { config } = await settingsOf(command);
      const [
        { rescoreRun },
        { defaultRunName },
        { parseWeights },
        { watchAndPrint, wholeNumber },
        { withDeployment },
        { shutdownSignal },
      ] = await Promise.all([
        import('../run/rescore-run.ts'),
        import('../run/name-run.ts'),
        import('../run/parse-weights.ts'),
        import('../run/train-file.ts'),
        import('../run/connect.ts'),
        import('../signals.ts'),
      ]);
      const iteration = wholeNumber(options.iteration, '--iteration');
      const weights = parseWeights(options.rewardWeights);
      const runId = options.run ?? defaultRunName(from);
      const signal = shutdownSignal();
      await withDeployment(config, async (connected) => {
        await rescoreRun(connected, { from, iteration, weights, runId });
        console.error(`run ${runId} trains on iteration ${iteration} of ${from} again: npx trialgate show ${runId}`);
        if (!options.detach) await watchAndPrint(connected, runId, options, signal);
      });
    });
}

type Options = { iteration: string; rewardWeights: string; run?: string; detach?: boolean; json?: boolean };
