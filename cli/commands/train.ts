import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('train <file>'), ['home'])
    .description('start the run that a run file describes (YAML or JSON), and watch it until it ends')
    .option('--run <id>', 'name of the run (default: the file name and the time)')
    .option('--iterations <n>', "number of iterations (default: the run file's)")
    .option('--no-check', 'start without asking the engines and trying an agent and its verifier first')
    .option('--detach', 'start it and return')
    .option('--json', 'print the run record at the end')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate train run.yaml\n  $ npx trialgate train run.yaml --run first --iterations 10 --detach',
    )
    .action(async (file: string, options: Options, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ trainFile }, { shutdownSignal }] = await Promise.all([
        import('../run/train-file.ts'),
        import('../signals.ts'),
      ]);
      await trainFile(file, { ...options, deployment: config }, shutdownSignal());
    });
}

type Options = { run?: string; iterations?: string; check: boolean; detach?: boolean; json?: boolean };
