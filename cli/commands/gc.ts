import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('gc'), ['home', 'database_url'])
    .description(
      'remove what no run needs any more: files that crashes left, and packages, repositories and datasets that are old; prints what uses the disk, also by run',
    )
    .option('--dry-run', 'say what would be removed, and remove nothing')
    .option('--json', 'as JSON')
    .addHelpText('after', '\nExamples:\n  $ npx trialgate gc --dry-run\n  $ npx trialgate gc')
    .action(async (options: { dryRun?: boolean; json?: boolean }, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ findGarbage, removeGarbage }, { sizeOf, useByFolder }, { keptByRuns, useByRun }, { withStore }] =
        await Promise.all([
          import('../disk/collect-garbage.ts'),
          import('../disk/disk-use.ts'),
          import('../disk/use-by-run.ts'),
          import('../run/connect.ts'),
        ]);
      const [found, runs] = await withStore(
        config,
        async (db) => [await findGarbage(db, config.home), await useByRun(db, config.home)] as const,
      );
      const garbage = options.dryRun ? found : await removeGarbage(found);
      const used = await useByFolder(config.home);
      if (options.json)
        return console.log(JSON.stringify({ dry_run: options.dryRun ?? false, garbage, used, runs }, null, 2));
      const verb = options.dryRun ? 'would remove' : 'removed';
      for (const { path, bytes, why } of garbage)
        console.log(`${verb} ${sizeOf(bytes).padStart(9)}  ${path}  (${why})`);
      const freed = garbage.reduce((sum, { bytes }) => sum + bytes, 0);
      console.log(garbage.length === 0 ? `nothing to remove; ${keptByRuns(runs)}` : `${verb} ${sizeOf(freed)} in all`);
      console.log(`\n${config.home} has`);
      for (const { folder, bytes } of used) console.log(`${sizeOf(bytes).padStart(9)}  ${folder}`);
      const kept = runs.filter(({ bytes }) => bytes > 0);
      if (kept.length > 0) console.log(garbage.length === 0 ? '\nruns' : `\nruns: ${keptByRuns(runs)}`);
      for (const { run, status, checkpoints, bytes } of kept)
        console.log(`${sizeOf(bytes).padStart(9)}  ${run} (${status}, ${checkpoints} checkpoint(s))`);
    });
}
