import { resolve } from 'node:path';
import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('export <policy> <folder>'), ['home', 'database_url'])
    .description(
      'write a policy version as a Hugging Face model folder with a card; a run alone means its newest version',
    )
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate export first ./first-model\n  $ npx trialgate export first@2 ./first-2\n  $ vllm serve ./first-model',
    )
    .action(async (policy: string, folder: string, _options: unknown, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ exportPolicy }, { withStore }, { parseRunOrPolicy }] = await Promise.all([
        import('../disk/export-policy.ts'),
        import('../run/connect.ts'),
        import('../run/name-run.ts'),
      ]);
      const of = parseRunOrPolicy(policy);
      const version = await withStore(config, (db) => exportPolicy(db, of, resolve(folder)));
      console.log(`policy version ${version} of run ${of.runId} is in ${resolve(folder)}`);
    });
}
