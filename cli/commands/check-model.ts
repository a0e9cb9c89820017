import type { Command } from 'commander';
import { TrialgateError } from '../../core/errors.ts';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('check-model <model>'), ['home'])
    .description(
      'say whether a model can be trained, or why not, and what is known of it: a folder, an installed model, or a name on Hugging Face; its weights are not read',
    )
    .option('--no-run', 'read the configuration only, and compare no small random model of it with plain PyTorch')
    .option('--json', 'as JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate check-model SmolLM2-135M-Instruct\n  $ npx trialgate check-model Qwen/Qwen3-8B\n  $ npx trialgate check-model ./my-model --no-run --json' +
        '\n\nExit codes: 0 it can be trained, 2 it cannot, or there is no such model, 3 the trainer is not installed or the hub cannot be asked.',
    )
    .action(async (model: string, options: { run: boolean; json?: boolean }, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ checkModel, describe, verdict }, { shutdownSignal }] = await Promise.all([
        import('../models/check-model.ts'),
        import('../signals.ts'),
      ]);
      const found = await checkModel(model, { home: config.home, run: options.run }, shutdownSignal());
      if (options.json) console.log(JSON.stringify(found, null, 2));
      else {
        if (found.reason === null) console.log(verdict(found));
        for (const line of describe(found)) console.log(line);
      }
      if (found.reason !== null) throw new TrialgateError('bad_input', found.reason);
    });
}
