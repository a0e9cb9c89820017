import type { Command } from 'commander';
import { TrialgateError } from '../../core/errors.ts';
import { EXIT } from '../exit.ts';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('try <task>'), [
    'home',
    'database_url',
    'gateway_url',
    'secret',
    'engine_keys',
    'unsandboxed',
  ])
    .description(
      'run one trial now, outside any run, on the engine of the deployment, and print its transcript, what agent and verifier printed, its reward and its samples',
    )
    .option('--agent <agent>', 'a bundled agent or the path of an agent file', 'oneshot')
    .option(
      '--run <run-or-file>',
      'use the settings of trials of this run or run file (default: the defaults of a run file)',
    )
    .option(
      '--engine <url>',
      "an engine of your own, for which no deployment need run, or openai+URL of any other server of OpenAI's completions; nothing is kept afterwards",
    )
    .option('--keep <folder>', 'copy what the agent left into a new folder')
    .option(
      '--explain',
      'run nothing: print what agent and verifier would be given of this machine, which are files, variables, network and limits',
    )
    .option(
      '--json',
      'print the trial as JSON, as `show TRIAL --json` does, with `samples`; or the attacks and their results',
    )
    .option(
      '--attack',
      'try attacks on the verifier in place of an agent, without a model and a deployment, and say which pay: exit code 1 if one does',
    )
    .option('--only <names>', 'with --attack: only these attacks, by their names, parted by commas')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate try tasks/train/add\n  $ npx trialgate try tasks/train/add --agent ./my-agent/agent.yaml --keep left\n  $ npx trialgate try tasks/train/add --run quickstart.yaml --json' +
        '\n  $ npx trialgate try tasks/train/add --engine http://127.0.0.1:8000' +
        '\n  $ npx trialgate try tasks/train/add --engine openai+https://host/v1 --engine-keys host=OPENAI_API_KEY' +
        '\n  $ npx trialgate try tasks/train/add --agent ./my-agent/agent.yaml --explain' +
        '\n  $ npx trialgate try --attack tasks/train/add\n  $ npx trialgate try --attack my-run/data/train.jsonl#0 --run my-run/run.yaml --json' +
        '\n  $ npx trialgate try --attack tasks/train/add --only conftest,reward_daemon' +
        '\n\nExit codes: 0 the trial ended as scored or truncated, 4 as agent_error, timed_out, verifier_error or infra_error; with --attack 1 if one pays.',
    )
    .action(async (task: string, options: Options, command: Command) => {
      const { config } = await settingsOf(command);
      if (options.attack && options.explain)
        throw new TrialgateError('bad_input', '--explain runs nothing, and --attack runs attacks: remove one of them');
      if (options.attack) {
        const [{ attackCommand }, { shutdownSignal }] = await Promise.all([
          import('../run/attack-command.ts'),
          import('../signals.ts'),
        ]);
        const { text, pays } = await attackCommand(config, { task, ...options }, shutdownSignal());
        console.log(text);
        process.exitCode = pays ? EXIT.attackPays : EXIT.done;
        return;
      }
      if (options.only !== undefined)
        throw new TrialgateError('bad_input', '--only: names attacks, so it needs --attack');
      const { shutdownSignal } = await import('../signals.ts');
      if (options.explain) {
        const { explainCommand } = await import('../run/explain-command.ts');
        console.log(await explainCommand(config, { task, ...options }, shutdownSignal()));
        return;
      }
      const { tryCommand } = await import('../run/try-command.ts');
      const { text, failed } = await tryCommand(config, { task, ...options }, shutdownSignal());
      console.log(text);
      process.exitCode = failed ? EXIT.failed : EXIT.done;
    });
}

type Options = {
  agent: string;
  run?: string;
  engine?: string;
  keep?: string;
  explain?: boolean;
  json?: boolean;
  attack?: boolean;
  only?: string;
};
