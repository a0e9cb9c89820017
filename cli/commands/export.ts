import { resolve } from 'node:path';
import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('export <policy> <folder>'), ['home', 'database_url'])
    .description(
      'write a policy version as a Hugging Face model folder with a card; a run alone means its newest version',
    )
    .option('--adapter', "of a run with `lora_rank`: the adapter alone, in peft's format; otherwise it is merged")
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate export first ./first-model\n  $ npx trialgate export first@2 ./first-2\n  $ npx trialgate export adapted ./adapter --adapter\n  $ vllm serve ./first-model',
    )
    .action(async (policy: string, folder: string, options: { adapter?: boolean }, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ exportPolicy }, { withStore }, { parseRunOrPolicy }, { shutdownSignal }] = await Promise.all([
        import('../disk/export-policy.ts'),
        import('../run/connect.ts'),
        import('../run/name-run.ts'),
        import('../signals.ts'),
      ]);
      const of = parseRunOrPolicy(policy);
      const version = await withStore(config, (db) =>
        exportPolicy(db, of, resolve(folder), { ...options, signal: shutdownSignal() }),
      );
      console.log(`policy version ${version} of run ${of.runId} is in ${resolve(folder)}`);
    });
}
