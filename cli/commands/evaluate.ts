import { basename, extname } from 'node:path';
import type { Command } from 'commander';
import { TrialgateError } from '../../core/errors.ts';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('evaluate <run-or-file>'), ['home'])
    .description(
      "evaluate a run's policy (RUN or RUN@VERSION) on held-out tasks now, with pass@1 and pass@k. A run that is under way shares its engines and its version. Of a run file: evaluate the model of a server of OpenAI's completions, of which nothing can be trained",
    )
    .option('--samples <n>', "trials a task (default: the run file's `evaluation.samples`)")
    .option('--tasks <folders...>', "held-out tasks (default: the run file's `evaluation.tasks`)")
    .option(
      '--engine <urls...>',
      "with a run file: the servers, openai+URL (default: the file's, else the deployment's)",
    )
    .option('--run <name>', "with a run file: the name of the new run (default: the file's name and the time)")
    .option('--detach', 'start it and return')
    .option('--json', 'print its result as JSON, as in `show RUN --json`')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate evaluate first\n  $ npx trialgate evaluate first@2 --samples 8 --tasks tasks/eval --json\n  $ npx trialgate evaluate quickstart.yaml --engine openai+https://host/v1 --run other',
    )
    .action(async (policy: string, options: Options, command: Command) => {
      const { config } = await settingsOf(command);
      const [
        { startEvaluation, watchEvaluation },
        { openEvaluation },
        { defaultRunName },
        { isRunFile },
        { requireRunId },
        { connectionsOf },
        { evaluationRequest },
        { printEvaluation },
        { withDeployment },
        { shutdownSignal },
      ] = await Promise.all([
        import('../run/evaluate-policy.ts'),
        import('../run/evaluate-file.ts'),
        import('../run/name-run.ts'),
        import('../run/try-command.ts'),
        import('../../core/ids.ts'),
        import('../config/connections.ts'),
        import('../run/evaluation-request.ts'),
        import('../show/print-evaluation.ts'),
        import('../run/connect.ts'),
        import('../signals.ts'),
      ]);
      const { engine: engines, run, tasks } = options;
      const isFile = isRunFile(policy);
      if (!isFile && (engines ?? run) !== undefined)
        throw new TrialgateError('bad_input', `--engine and --run go with a run file, and there is no file ${policy}`);
      const name = isFile ? (run ?? defaultRunName(basename(policy, extname(policy)))) : null;
      if (name !== null) requireRunId(name);
      const request = evaluationRequest(name ?? policy, options);
      const { runId } = request;
      const signal = shutdownSignal();
      await withDeployment(config, async (connected) => {
        const relay = connectionsOf(config);
        if (isFile) {
          const place = { home: config.home, relay, report: (line: string) => console.error(line) };
          const asked = { file: policy, engines, runId, hasTasks: tasks !== undefined };
          await openEvaluation(connected, asked, place, signal);
          console.error(`run ${runId}: nothing of it can be trained on, because its servers return no token ids`);
        }
        await startEvaluation(connected, request, relay);
        if (options.detach) return console.error(`${name ?? policy} is being evaluated: npx trialgate show ${runId}`);
        const done = await watchEvaluation(connected, runId, signal);
        console.log(await printEvaluation(connected.db, done, options.json ?? false));
      });
    });
}

type Options = {
  samples?: string;
  tasks?: string[];
  engine?: string[];
  run?: string;
  detach?: boolean;
  json?: boolean;
};
