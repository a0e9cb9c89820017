import { Option, type Command } from 'commander';
import { addSettings, settingsOf } from '../../cli/options.ts';
import { TIERS, type Tier } from './tiers.ts';

export function register(root: Command): void {
  addSettings(root.command('test', { hidden: true }), ['device', 'python'])
    .description("run the project's own tests, those with the real parts too")
    .addOption(
      new Option('--only <tiers...>', 'some tiers; only temporal and real install what they need').choices(TIERS),
    )
    .addHelpText('after', '\nExamples:\n  $ npm test\n  $ npm run test:fast\n  $ npm test -- --only workerd')
    .action(async (options: { only?: Tier[] }, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ runTests }, { shutdownSignal }] = await Promise.all([
        import('./run-tests.ts'),
        import('../../cli/signals.ts'),
      ]);
      process.exitCode = await runTests({ ...options, device: config.device, python: config.python }, shutdownSignal());
    });
}
