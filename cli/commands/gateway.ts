import type { Command } from 'commander';
import { GATEWAY_KEYS, settingsFrom } from '../../gateway/settings.ts';
import { addSettings, settingsOf } from '../options.ts';

const SETTINGS = [
  'gateway_port',
  'gateway_host',
  'database_url',
  'admin_key',
  'secret',
  'home',
  ...GATEWAY_KEYS,
] as const;
const ALIASES = { gateway_port: '--port', gateway_host: '--host' } as const;

export function register(root: Command): void {
  addSettings(root.command('gateway'), SETTINGS, ALIASES)
    .description('run the gateway in the foreground')
    .option(
      '--engine <url>',
      'an engine; again for each replica (TRIALGATE_ENGINES)',
      (url: string, all: string[]) => [...all, url],
      [],
    )
    .addHelpText(
      'after',
      '\nExample:\n  $ npx trialgate gateway --port 8700 --engine http://127.0.0.1:8000 --database-url postgres://user:password@127.0.0.1/trialgate',
    )
    .action(async (options: { engine: string[] }, command: Command) => {
      const more = options.engine.length ? { engines: JSON.stringify(options.engine) } : {};
      const { config } = await settingsOf(command, ALIASES, more);
      const [{ runGateway, requireDatabase }, { secretsOf }, { connectionsOf }, { shutdownSignal }] = await Promise.all(
        [
          import('../load-gateway.ts').then(({ loadGateway }) => loadGateway()),
          import('../config/secrets.ts'),
          import('../config/connections.ts'),
          import('../signals.ts'),
        ],
      );
      const secret = config.secret ?? secretsOf(config.home).secret;
      const { databaseUrl, engines } = connectionsOf(config);
      const { gateway_port: port, gateway_host: host, admin_key: adminKey = null } = config;
      await requireDatabase(databaseUrl);
      await runGateway(
        {
          port,
          host,
          engines,
          databaseUrl,
          adminKey,
          secret,
          settings: settingsFrom(config),
          heavyThread: new URL('../heavy-thread.ts', import.meta.url),
        },
        shutdownSignal(),
      );
    });
}
