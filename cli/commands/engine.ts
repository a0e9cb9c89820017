import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

const SETTINGS = ['home', 'gateway_url', 'admin_key'] as const;

export function register(root: Command): void {
  const engine = root
    .command('engine')
    .description("list, join, drain and remove the deployment's engines; switch its own to another model");
  addSettings(engine.command('use <model>'), ['home'])
    .description(
      'switch the engine of the deployment that runs to another model (a folder, an installed model, or a name on Hugging Face); all other processes go on, and all other settings stay',
    )
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate engine use /models/Qwen3-4B\n  $ npx trialgate engine use SmolLM2-135M-Instruct' +
        '\n\nOther --max-model-len or --engine-args need `npx trialgate down`, then `npx trialgate up`.',
    )
    .action(async (model: string, _options: unknown, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ useModel }, { shutdownSignal }, { stackProgress }] = await Promise.all([
        import('../supervisor/use-model.ts'),
        import('../signals.ts'),
        import('../progress.ts'),
      ]);
      const progress = stackProgress();
      const done = await useModel(config, model, progress.show, shutdownSignal()).finally(progress.end);
      console.log(done);
    });

  addSettings(engine.command('list'), SETTINGS)
    .description('list the engines: who names each, whether it gets new calls, and the calls under way there')
    .option('--json', 'as JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate engine list\n  $ npx trialgate engine list --gateway-url http://127.0.0.1:8700 --json',
    )
    .action(async (options: { json?: boolean }, command: Command) => {
      const { config } = await settingsOf(command);
      const { readEngines, engineTable } = await import('../engines/engines.ts');
      const engines = await readEngines(config);
      console.log(options.json ? JSON.stringify({ engines }, null, 2) : engineTable(engines));
    });
  addSettings(engine.command('join <url>'), SETTINGS)
    .description('add an engine to the running deployment, or let a drained one get calls again; no restart')
    .addHelpText('after', '\nExample:\n  $ npx trialgate engine join http://10.0.0.7:8000')
    .action((url: string, _options: unknown, command: Command) => change(command, 'join', plain(url)));
  addSettings(engine.command('drain <url>'), SETTINGS)
    .description('give an engine no new calls, and let those under way end; `engine join` ends this')
    .option('--wait', 'wait until no call is under way there')
    .addHelpText('after', '\nExample:\n  $ npx trialgate engine drain http://10.0.0.7:8000 --wait')
    .action(async (given: string, options: { wait?: boolean }, command: Command) => {
      const url = plain(given);
      await change(command, 'drain', url);
      if (!options.wait) return;
      const { config } = await settingsOf(command);
      const [{ awaitDrained }, { shutdownSignal }] = await Promise.all([
        import('../engines/engines.ts'),
        import('../signals.ts'),
      ]);
      await awaitDrained(config, url, shutdownSignal());
      console.log(`${url} has no calls`);
    });
  addSettings(engine.command('leave <url>'), SETTINGS)
    .description('remove an engine that `engine join` added; calls under way there end')
    .addHelpText('after', '\nExample:\n  $ npx trialgate engine leave http://10.0.0.7:8000')
    .action((url: string, _options: unknown, command: Command) => change(command, 'leave', plain(url)));
}

const plain = (url: string): string => url.replace(/\/+$/, '');

async function change(command: Command, how: 'join' | 'drain' | 'leave', url: string): Promise<void> {
  const { config } = await settingsOf(command);
  const { changeEngine } = await import('../engines/engines.ts');
  console.log(await changeEngine(config, how, url));
}
