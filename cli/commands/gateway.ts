import { Option, type Command } from 'commander';
import type { ResolvedConfig } from '../config/resolve.ts';
import type { Deployment } from '../config/schema.ts';
import type { NodeGatewayOptions } from '../../gateway/runtimes/node/start-gateway.ts';
import { GATEWAY_KEYS, settingsFrom } from '../../gateway/settings.ts';
import { DISCOVERY_KEYS } from '../config/settings.ts';
import { addSettings, settingsOf, valid } from '../options.ts';

const SETTINGS = [
  'gateway_port',
  'gateway_host',
  'database_url',
  'temporal_address',
  'admin_key',
  'read_key',
  'secret',
  'home',
  'engine_keys',
  'log_format',
  ...DISCOVERY_KEYS,
  ...GATEWAY_KEYS,
] as const;
const ALIASES = { gateway_port: '--port', gateway_host: '--host' } as const;

export function register(root: Command): void {
  addSettings(root.command('gateway'), SETTINGS, ALIASES)
    .description(
      "run the gateway in the foreground; without --database-url it uses the deployment's PostgreSQL, and starts it if it does not run",
    )
    .option(
      '--engine <url>',
      'an engine; again for each replica (TRIALGATE_ENGINES)',
      (url: string, all: string[]) => [...all, url],
      [],
    )
    .addOption(
      new Option(
        '--relay-address <url>',
        'where the other gateways of the deployment reach this one, with --engine relay (default: where it listens)',
      ).env('TRIALGATE_RELAY_ADDRESS'),
    )
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate gateway --engine http://127.0.0.1:8000' +
        '\n  $ npx trialgate gateway --engine http://127.0.0.1:8000 --database-url postgres://user:password@127.0.0.1/trialgate' +
        '\n  $ npx trialgate gateway --engines-file engines.yaml' +
        '\n  $ npx trialgate gateway --engines-kubernetes app=vllm --engines-kubernetes-port 8000',
    )
    .action(async (options: { engine: string[]; relayAddress?: string }, command: Command) => {
      const more = options.engine.length ? { engines: JSON.stringify(options.engine) } : {};
      const asked = await settingsOf(command, ALIASES, more);
      const { config } = asked;
      // An end while the gateway is loaded must not leave its bundle in the folder for temporary files.
      const signal = (await import('../signals.ts')).shutdownSignal();
      const [
        { runGateway, requireDatabase },
        { httpUrl },
        { secretsOf },
        { connectionsOf },
        { engineKeysOf },
        { INSTALLS, homeFolders },
        { processLog, logFormatOf },
        { operateInThread },
      ] = await Promise.all([
        import('../load-gateway.ts').then(({ loadGateway }) => loadGateway()),
        import('../config/schema.ts'),
        import('../config/secrets.ts'),
        import('../config/connections.ts'),
        import('../config/engine-keys.ts'),
        import('../folders.ts'),
        import('../process-log.ts'),
        import('../run/operate-in-thread.ts'),
      ]);
      const log = processLog('gateway', logFormatOf(config));
      const { relayAddress: given } = options;
      const relayAddress = given === undefined ? undefined : valid('--relay-address', httpUrl.safeParse(given));
      const secret = config.secret ?? secretsOf(config.home).secret;
      signal.throwIfAborted();
      const own = config.database_url ? null : await ownPostgres(asked, signal);
      try {
        const { databaseUrl, engines } = connectionsOf(config);
        const { gateway_port: port, gateway_host: host } = config;
        const adminKey = config.admin_key ?? own?.adminKey ?? null;
        await requireDatabase(databaseUrl);
        await runGateway(
          {
            port,
            host,
            engines,
            engineKeys: engineKeysOf(config.engine_keys),
            ...discoveryOf(config),
            databaseUrl,
            adminKey,
            readKey: config.read_key ?? null,
            secret,
            relayAddress,
            settings: settingsFrom(config),
            page: INSTALLS.page,
            checkpoints: homeFolders(config.home).checkpoints,
            // Without a key any program of this machine could change runs, sandboxed agents too.
            ...(config.temporal_address === undefined || adminKey === null ? {} : operateInThread(config)),
            heavyThread: new URL('../heavy-thread.ts', import.meta.url),
            log,
          },
          signal,
        );
      } finally {
        await own?.stop();
      }
    });
}

function discoveryOf(config: Deployment): Pick<NodeGatewayOptions, 'enginesFile' | 'enginesKubernetes'> {
  const { engines_kubernetes: selector, engines_kubernetes_namespace: namespace } = config;
  const { engines_kubernetes_port: port, engines_kubernetes_api: api } = config;
  return {
    enginesFile: config.engines_file,
    enginesKubernetes: selector === undefined ? undefined : { selector, namespace, port, api },
  };
}

/** Starts the deployment's PostgreSQL, unless the deployment runs. Returns its admin key; null when nothing had to be started. */
async function ownPostgres(
  { config, origins }: ResolvedConfig,
  signal: AbortSignal,
): Promise<{ adminKey: string; stop(): Promise<void> } | null> {
  const [{ currentState }, { startStack }, { secretsOf }, { homeFolders }] = await Promise.all([
    import('../supervisor/print.ts'),
    import('../supervisor/stack.ts'),
    import('../config/secrets.ts'),
    import('../folders.ts'),
  ]);
  if (currentState(config.home)?.status === 'ready') return null;
  const stack = await startStack(
    { config, origins: { postgres_port: origins.postgres_port }, only: ['postgres'] },
    signal,
  );
  const { secrets } = homeFolders(config.home);
  console.error(`PostgreSQL runs at ${stack.state().components[0]?.address ?? 'an unknown address'}`);
  if (config.admin_key === undefined) console.error(`the admin key of the session routes is in ${secrets} (admin_key)`);
  return { adminKey: secretsOf(config.home).admin_key, stop: () => stack.stop() };
}
