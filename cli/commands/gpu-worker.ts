import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('gpu-worker'), ['temporal_address', 'home', 'device'])
    .description('run the trainer in the foreground')
    .addHelpText('after', '\nExample:\n  $ npx trialgate gpu-worker --temporal-address 127.0.0.1:7233 --device cpu')
    .action(async (_options: unknown, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ connectionsOf }, { deviceOf }, { gpuWorkerLaunch }, { runInForeground }] = await Promise.all([
        import('../config/connections.ts'),
        import('../supervisor/device.ts'),
        import('../supervisor/components/workers.ts'),
        import('../foreground.ts'),
      ]);
      const { temporalAddress } = connectionsOf(config);
      process.exitCode = await runInForeground(
        gpuWorkerLaunch({ temporalAddress, home: config.home, device: deviceOf(config.device) }),
      );
    });
}
