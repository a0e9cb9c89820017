import type { Command } from 'commander';
import { RANK_KEYS } from '../config/settings.ts';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('gpu-worker'), [
    'temporal_address',
    'home',
    'device',
    'dtype',
    'gateway_url',
    'secret',
    'trainer_keys',
    'metrics_address',
    'log_format',
    ...RANK_KEYS,
  ])
    .description('run the trainer in the foreground')
    .addHelpText('after', '\nExample:\n  $ npx trialgate gpu-worker --temporal-address 127.0.0.1:7233 --device cpu')
    .action(async (_options: unknown, command: Command) => {
      const { config } = await settingsOf(command);
      const [
        { connectionsOf },
        { deviceOf, dtypeOf },
        { gpuWorkerLaunch, metricsOf },
        { logFormatOf },
        { runInForeground },
      ] = await Promise.all([
        import('../config/connections.ts'),
        import('../supervisor/device.ts'),
        import('../supervisor/components/workers.ts'),
        import('../process-log.ts'),
        import('../foreground.ts'),
      ]);
      const { temporalAddress } = connectionsOf(config);
      process.exitCode = await runInForeground(
        gpuWorkerLaunch({
          temporalAddress,
          home: config.home,
          device: deviceOf(config.device),
          dtype: dtypeOf(config).dtype,
          ranks: config,
          gpus: config.trainer_gpus ?? null,
          trainerKeys: config.trainer_keys,
          metrics: metricsOf(config, 0),
          logFormat: logFormatOf(config),
          relay:
            config.gateway_url && config.secret ? { gatewayUrls: config.gateway_url, secret: config.secret } : null,
        }),
      );
    });
}
