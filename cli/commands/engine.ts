import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  const engine = root.command('engine').description("change the deployment's own engine");
  addSettings(engine.command('use <model>'), ['home'])
    .description(
      'switch the engine of the deployment that runs to another model (a folder, an installed model, or a name on Hugging Face); all other processes go on, and all other settings stay',
    )
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate engine use /models/Qwen3-4B\n  $ npx trialgate engine use SmolLM2-135M-Instruct' +
        '\n\nOther --max-model-len or --engine-args need `npx trialgate down`, then `npx trialgate up`.',
    )
    .action(async (model: string, _options: unknown, command: Command) => {
      const asked = await settingsOf(command);
      const [{ useModel }, { shutdownSignal }, { stackProgress }] = await Promise.all([
        import('../supervisor/use-model.ts'),
        import('../signals.ts'),
        import('../progress.ts'),
      ]);
      const progress = stackProgress();
      const done = await useModel(asked, model, progress.show, shutdownSignal()).finally(progress.end);
      console.log(done);
    });
}
