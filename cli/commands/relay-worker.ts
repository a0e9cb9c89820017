import { hostname } from 'node:os';
import type { Command } from 'commander';
import { addSettings, settingsOf, valid } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('relay-worker'), ['admin_key', 'engine_keys'])
    .description('dial a gateway from a machine that it cannot reach, and serve its calls with the engine here')
    .requiredOption('--gateway <url>', 'the gateway, which must run with --engine relay')
    .requiredOption(
      '--engine <url>',
      'the engine here: http://host:port, unix:/absolute/path.sock or openai+https://host:port/v1',
    )
    .option(
      '--id <name>',
      "the worker's name, which must be its own (default: this machine's name and the engine's port)",
    )
    .addHelpText(
      'after',
      '\nExample:\n  $ TRIALGATE_ADMIN_KEY=… npx trialgate relay-worker --gateway https://gateway.example --engine http://127.0.0.1:8000',
    )
    .action(async (options: { gateway: string; engine: string; id?: string }, command: Command) => {
      const [
        { config },
        { engineUrl, httpUrl },
        { workerId },
        { engineKeysOf },
        { runRelayWorker },
        { shutdownSignal },
      ] = await Promise.all([
        settingsOf(command),
        import('../config/schema.ts'),
        import('../../gateway/relay/hello.ts'),
        import('../config/engine-keys.ts'),
        import('../../gateway/runtimes/node/relay-worker.ts'),
        import('../signals.ts'),
      ]);
      const engine = valid('--engine', engineUrl.safeParse(options.engine));
      await runRelayWorker(
        {
          gateway: valid('--gateway', httpUrl.safeParse(options.gateway)),
          engine,
          engineKeys: engineKeysOf(config.engine_keys),
          id: valid('--id', workerId.safeParse(options.id ?? nameFor(engine))),
          adminKey: config.admin_key ?? null,
          log: (line) => console.error(`${new Date().toISOString()} relay worker: ${line}`),
        },
        shutdownSignal(),
      );
    });
}

function nameFor(engine: string): string {
  const place = /:(\d+)$/.exec(engine)?.[1] ?? engine.split('/').at(-1) ?? '';
  return `${hostname()}-${place}`.replace(/[^A-Za-z0-9._-]/g, '-').slice(0, 64);
}
