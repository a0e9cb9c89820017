import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('configure <run> <settings...>'), ['home'])
    .description('change settings of a run that is under way; if a value is bad, nothing changes')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate configure first optim.lr=1e-5 group_size=16\n  $ npx trialgate configure first deadlines.group=3600 evaluation.every=5',
    )
    .action(async (runId: string, settings: string[], _options: unknown, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ operate }, { parseChanges }] = await Promise.all([
        import('../run/operate.ts'),
        import('../run/parse-changes.ts'),
      ]);
      await operate(config, runId, 'configure', parseChanges(settings));
    });
}
