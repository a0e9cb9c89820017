import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  const verb = root.command('import').description('make task folders of the rows of a data set');
  addSettings(verb.command('swe <rows> <folder>'), ['home'])
    .description(
      'make a task of each row of SWE-bench, SWE-Gym or SWE-rebench: its issue, its repository at its commit, and its tests. Rows are a file, a folder of files, or a data set on the Hugging Face hub',
    )
    .option('--name <subset>', 'the subset of a data set on the hub')
    .option('--split <split>', 'of a folder or of a data set on the hub', 'train')
    .option('--limit <count>', 'only the first so many rows')
    .option(
      '--mirror <folder>',
      'a folder with clones of the repositories (owner/name or owner__name), for work without a network',
    )
    .option('--repository-base <url>', 'the beginning of the URLs of the repositories', 'https://github.com')
    .option(
      '--image <image>',
      "`row` (the row's own, if it has one), `none`, or a name with {instance_id} in it",
      'row',
    )
    .option('--history', 'let agents see the commits before their own')
    .option('--shares', 'give the shares of passed tests as rewards too: fail_to_pass, pass_to_pass')
    .option('--json', 'as JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate import swe SWE-bench/SWE-bench_Verified verified --split test --limit 20' +
        "\n  $ npx trialgate import swe rows.jsonl tasks --mirror ~/clones --image none\n  $ npx trialgate import swe SWE-Gym/SWE-Gym gym --image 'xingyaoww/sweb.eval.x86_64.{instance_id:_s_}'",
    )
    .action(async (rows: string, folder: string, options: Options, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ importSweRows }, { importReport }, { wholeNumber }, { shutdownSignal }] = await Promise.all([
        import('../import/swe/import-rows.ts'),
        import('../import/swe/import-report.ts'),
        import('../run/train-file.ts'),
        import('../signals.ts'),
      ]);
      const { name, split, limit, mirror, repositoryBase: base, image, history = false, shares = false } = options;
      const imported = await importSweRows(
        {
          ...{ rows, folder, name, split, image, history, shares },
          limit: limit === undefined ? undefined : wholeNumber(limit, '--limit'),
          repositories: mirror === undefined ? { base } : { mirror },
          home: config.home,
        },
        shutdownSignal(),
      );
      console.log(options.json ? JSON.stringify(imported, null, 2) : importReport(imported));
    });
}

type Options = {
  name?: string;
  split: string;
  limit?: string;
  mirror?: string;
  repositoryBase: string;
  image: string;
  history?: boolean;
  shares?: boolean;
  json?: boolean;
};
