import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('evaluate <run[@version]>'), ['home'])
    .description(
      "evaluate a run's policy on held-out tasks now, with pass@1 and pass@k. A run that is under way shares its engines and its version",
    )
    .option('--samples <n>', "trials a task (default: the run file's `evaluation.samples`)")
    .option('--tasks <folders...>', "held-out tasks (default: the run file's `evaluation.tasks`)")
    .option('--detach', 'start it and return')
    .option('--json', 'print its result as JSON, as in `show RUN --json`')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate evaluate first\n  $ npx trialgate evaluate first@2 --samples 8 --tasks tasks/eval --json',
    )
    .action(async (policy: string, options: Options, command: Command) => {
      const { config } = await settingsOf(command);
      const [
        { startEvaluation, watchEvaluation },
        { connectionsOf },
        { evaluationRequest },
        { printEvaluation },
        { withDeployment },
        { shutdownSignal },
      ] = await Promise.all([
        import('../run/evaluate-policy.ts'),
        import('../config/connections.ts'),
        import('../run/evaluation-request.ts'),
        import('../show/print-evaluation.ts'),
        import('../run/connect.ts'),
        import('../signals.ts'),
      ]);
      const request = evaluationRequest(policy, options);
      const signal = shutdownSignal();
      await withDeployment(config, async (connected) => {
        await startEvaluation(connected, request, connectionsOf(config));
        if (options.detach) return console.error(`${policy} is being evaluated: npx trialgate show ${request.runId}`);
        const done = await watchEvaluation(connected, request.runId, signal);
        console.log(await printEvaluation(connected.db, done, options.json ?? false));
      });
    });
}

type Options = { samples?: string; tasks?: string[]; detach?: boolean; json?: boolean };
