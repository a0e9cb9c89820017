import { Option, type Command } from 'commander';
import { OUTCOMES, type Outcome } from '../../core/outcomes.ts';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('trials <run>'), ['home', 'database_url'])
    .description("list a run's trials with task, outcome, reward and reason")
    .addOption(new Option('--outcome <outcome>', 'only these').choices([...OUTCOMES, 'open']))
    .option('--iteration <n>', 'only those of this iteration')
    .option('--json', 'as JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate trials first\n  $ npx trialgate trials first --outcome agent_error\n  $ npx trialgate trials first --iteration 2 --json',
    )
    .action(async (runId: string, options: Options, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ listRunTrials, trialsTable }, { withStore }, { wholeNumber }] = await Promise.all([
        import('../show/run-trials.ts'),
        import('../run/connect.ts'),
        import('../run/train-file.ts'),
      ]);
      const { outcome, iteration, json } = options;
      const only = {
        outcome,
        ...(iteration === undefined ? {} : { iteration: wholeNumber(iteration, '--iteration') }),
      };
      const trials = await withStore(config, (db) => listRunTrials(db, runId, only));
      console.log(json ? JSON.stringify(trials, null, 2) : trialsTable(trials));
    });
}

type Options = { outcome?: Outcome | 'open'; iteration?: string; json?: boolean };
