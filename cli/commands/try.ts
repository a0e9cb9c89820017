import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('try <task>'), ['home', 'database_url', 'gateway_url', 'secret', 'unsandboxed'])
    .description(
      'run one trial now, outside any run, on the engine of the deployment, and print its transcript, what agent and verifier printed, its reward and its samples',
    )
    .option('--agent <agent>', 'a bundled agent or the path of an agent file', 'oneshot')
    .option(
      '--run <run-or-file>',
      'use the settings of trials of this run or run file (default: the defaults of a run file)',
    )
    .option('--engine <url>', 'an engine of your own, for which no deployment need run; nothing is kept afterwards')
    .option('--keep <folder>', 'copy what the agent left into a new folder')
    .option('--json', 'print the trial as JSON, as `show TRIAL --json` does, with `samples`')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate try tasks/train/add\n  $ npx trialgate try tasks/train/add --agent ./my-agent/agent.yaml --keep left\n  $ npx trialgate try tasks/train/add --run quickstart.yaml --json' +
        '\n  $ npx trialgate try tasks/train/add --engine http://127.0.0.1:8000',
    )
    .action(async (task: string, options: Options, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ tryCommand }, { shutdownSignal }] = await Promise.all([
        import('../run/try-command.ts'),
        import('../signals.ts'),
      ]);
      console.log(await tryCommand(config, { task, ...options }, shutdownSignal()));
    });
}

type Options = { agent: string; run?: string; engine?: string; keep?: string; json?: boolean };
