import { Option, type Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('worker'), [
    'temporal_address',
    'database_url',
    'gateway_url',
    'home',
    'secret',
    'unsandboxed',
    'max_sandboxes',
    'sandboxes_per_second',
    'warm_sandboxes',
    'wait_for_memory',
    'metrics_address',
    'log_format',
  ])
    .description('run workflows, activities or both in the foreground')
    .addOption(new Option('--only <part>', 'one of the two').choices(['workflows', 'activities']))
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate worker\n  $ npx trialgate worker --only activities --temporal-address 127.0.0.1:7233',
    )
    .action(async (options: { only?: 'workflows' | 'activities' }, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ runWorker }, { logFormatOf }, { connectionsOf }, { shutdownSignal }] = await Promise.all([
        import('../worker.ts'),
        import('../process-log.ts'),
        import('../config/connections.ts'),
        import('../signals.ts'),
      ]);
      const { temporalAddress, databaseUrl, gatewayUrls, secret } = connectionsOf(config);
      const { home, unsandboxed, max_sandboxes: maxSandboxes, sandboxes_per_second: sandboxesPerSecond } = config;
      await runWorker(
        {
          only: options.only,
          temporalAddress,
          databaseUrl,
          gatewayUrls,
          home,
          secret,
          unsandboxed,
          maxSandboxes,
          sandboxesPerSecond,
          warmSandboxes: config.warm_sandboxes,
          waitForMemory: config.wait_for_memory,
          metricsAddress: config.metrics_address ?? null,
          logFormat: logFormatOf(config),
        },
        shutdownSignal(),
      );
    });
}
