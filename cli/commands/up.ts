import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('up'))
    .description('start everything in the background and return when it is ready')
    .option('--no-install', 'do not install missing packages')
    .option('--json', 'print the state as JSON at the end')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate up\n  $ npx trialgate up --gateway-port 0 --engines http://127.0.0.1:8000',
    )
    .action(async (options: { json?: boolean; install: boolean }, command: Command) => {
      const asked = await settingsOf(command);
      const { config } = asked;
      const [
        { shutdownSignal },
        { livingState },
        { requireSameSettings },
        { up },
        { stackProgress },
        { printStatus },
        { pageUrl },
        { requireMachine },
        { warnOfSettingsNotGiven },
      ] = await Promise.all([
        import('../signals.ts'),
        import('../supervisor/state.ts'),
        import('../supervisor/require-same-settings.ts'),
        import('../supervisor/up.ts'),
        import('../progress.ts'),
        import('../supervisor/print.ts'),
        import('../run/page-address.ts'),
        import('../doctor/require-machine.ts'),
        import('../supervisor/settings-not-given.ts'),
      ]);
      const signal = shutdownSignal();
      // A deployment that runs is not changed, so nothing is installed for other settings.
      const running = livingState(config.home);
      if (running) {
        const { requireEngineModel } = await import('../models/require-model.ts');
        // The refusal of other settings names the command that switches to this model.
        if (asked.flags.model !== undefined) await requireEngineModel(config, signal);
        requireSameSettings(asked, running);
      } else {
        await requireMachine(asked, { installs: options.install });
        warnOfSettingsNotGiven(asked);
      }
      if (options.install) {
        const { installWithProgress } = await import('../install/install.ts');
        await installWithProgress({ device: config.device, python: config.python }, signal);
      }
      if (!running) {
        const { requireEngineModel } = await import('../models/require-model.ts');
        await requireEngineModel(config, signal);
      }
      const progress = stackProgress();
      try {
        const { state, already } = await up({ asked, onChange: progress.show }, signal);
        progress.end();
        if (options.json) return console.log(JSON.stringify(state, null, 2));
        console.log(already ? 'Trialgate is already up:' : 'Trialgate is up:');
        printStatus(state);
        console.log(`page: ${pageUrl(config)} (\`npx trialgate open\` prints it with its key)`);
      } catch (error) {
        progress.end();
        if (signal.aborted && !running) console.error('what it had started was stopped again, and data stays');
        throw error;
      } finally {
        progress.end();
      }
    });
}
