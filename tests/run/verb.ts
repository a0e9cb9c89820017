import { Option, type Command } from 'commander';
import { addSettings, settingsOf } from '../../cli/options.ts';

export function register(root: Command): void {
  addSettings(root.command('test', { hidden: true }), ['device', 'python'])
    .description("run the project's own tests, those with the real parts too")
    .addOption(new Option('--only <part>', 'one part').choices(['checks', 'fast', 'real']))
    .addHelpText('after', '\nExamples:\n  $ npm test\n  $ npm test -- --only fast')
    .action(async (options: { only?: 'checks' | 'fast' | 'real' }, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ runTests }, { shutdownSignal }] = await Promise.all([import('./run-tests.ts'), import('../../cli/signals.ts')]);
      process.exitCode = await runTests({ ...options, device: config.device, python: config.python }, shutdownSignal());
    });
}
