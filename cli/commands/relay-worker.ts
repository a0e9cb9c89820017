import { hostname } from 'node:os';
import path from 'node:path';
import { Option, type Command } from 'commander';
import { addSettings, settingsOf, valid } from '../options.ts';

type Options = { gateway: string; engine: string; id?: string; checkpoints?: string };

export function register(root: Command): void {
  addSettings(root.command('relay-worker'), ['admin_key', 'engine_keys', 'log_format'])
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
    .addOption(
      new Option(
        '--checkpoints <dir>',
        "fetch the checkpoints that the engine loads from the gateway into this folder, which the engine must see under the same path (default: the engine sees the deployment's own folder)",
      ).env('TRIALGATE_RELAY_CHECKPOINTS'),
    )
    .addHelpText(
      'after',
      '\nExamples:\n  $ TRIALGATE_ADMIN_KEY=… npx trialgate relay-worker --gateway https://gateway.example --engine http://127.0.0.1:8000' +
        '\n  $ TRIALGATE_ADMIN_KEY=… npx trialgate relay-worker --gateway https://gateway.example --engine http://127.0.0.1:8000 --checkpoints checkpoints',
    )
    .action(async (options: Options, command: Command) => {
      const [
        { config },
        { engineUrl, httpUrl },
        { workerId },
        { engineKeysOf },
        { runRelayWorker },
        { processLog, logFormatOf },
        { shutdownSignal },
      ] = await Promise.all([
        settingsOf(command),
        import('../config/schema.ts'),
        import('../../gateway/relay/hello.ts'),
        import('../config/engine-keys.ts'),
        import('../../gateway/runtimes/node/relay-worker.ts'),
        import('../process-log.ts'),
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
          // An empty variable names no folder: it would mean the current one.
          checkpoints: options.checkpoints ? path.resolve(options.checkpoints) : undefined,
          log: processLog('relay-worker', logFormatOf(config)),
        },
        shutdownSignal(),
      );
    });
}

function nameFor(engine: string): string {
  const place = /:(\d+)$/.exec(engine)?.[1] ?? engine.split('/').at(-1) ?? '';
  return `${hostname()}-${place}`.replace(/[^A-Za-z0-9._-]/g, '-').slice(0, 64);
}
