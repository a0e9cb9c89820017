import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

const SETTINGS = [
  'gateway_port', 'gateway_host', 'database_url', 'admin_key', 'secret', 'home',
  'token_in', 'budget_end', 'strict_model', 'hold_seconds', 'idle_seconds', 'keep_alive_seconds', 'store_wait_seconds', 'max_calls_in_flight', 'conversation_memory_mb', 'max_body_bytes', 'max_body_nodes', 'max_body_depth', 'max_body_bytes_in_flight', 'compat',
] as const;
const ALIASES = { gateway_port: '--port', gateway_host: '--host' } as const;

export function register(root: Command): void {
  addSettings(root.command('gateway'), [...SETTINGS], ALIASES)
    .description('run the gateway in the foreground')
    .option('--engine <url>', 'an engine; again for each replica (TRIALGATE_ENGINES)', (url: string, all: string[]) => [...all, url], [])
    .addHelpText('after', '\nExample:\n  $ npx trialgate gateway --port 8700 --engine http://127.0.0.1:8000 --database-url postgres://user:password@127.0.0.1/trialgate')
    .action(async (options: { engine: string[] }, command: Command) => {
      const more = options.engine.length ? { engines: JSON.stringify(options.engine) } : {};
      const { config } = await settingsOf(command, ALIASES, more);
      const [{ runGateway, requireDatabase }, { secretsOf }, { connectionsOf }, { shutdownSignal }] = await Promise.all([
        import('../load-gateway.ts').then(({ loadGateway }) => loadGateway()),
        import('../config/secrets.ts'),
        import('../config/connections.ts'),
        import('../signals.ts'),
      ]);
      const secret = config.secret ?? secretsOf(config.home).secret;
      const { databaseUrl, engines } = connectionsOf(config);
      const { gateway_port: port, gateway_host: host, admin_key: adminKey = null } = config;
      await requireDatabase(databaseUrl);
      const settings = {
        tokenIn: config.token_in,
        budgetEnd: config.budget_end,
        strictModel: config.strict_model,
        holdMs: config.hold_seconds * 1000,
        idleMs: config.idle_seconds * 1000,
        keepAliveMs: config.keep_alive_seconds * 1000,
        storeWaitMs: config.store_wait_seconds * 1000,
        maxCallsInFlight: config.max_calls_in_flight,
        conversationMemoryBytes: config.conversation_memory_mb * 2 ** 20,
        maxBodyBytes: config.max_body_bytes,
        maxBodyNodes: config.max_body_nodes,
        maxBodyDepth: config.max_body_depth,
        maxBodyBytesInFlight: config.max_body_bytes_in_flight,
        compat: config.compat,
      };
      await runGateway({ port, host, engines, databaseUrl, adminKey, secret, settings, heavyThread: new URL('../heavy-thread.ts', import.meta.url) }, shutdownSignal());
    });
}
