import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

type TestOptions = { run?: string; runtime?: string; large?: boolean; json?: boolean };

export function register(root: Command): void {
  const sandbox = root.command('sandbox').description('list the kinds of sandboxes, and test what one guarantees here');
  sandbox
    .command('list')
    .description('list the kinds of sandboxes and what each gives on this machine')
    .option('--json', 'as JSON')
    .addHelpText('after', '\nExamples:\n  $ npx trialgate sandbox list\n  $ npx trialgate sandbox list --json')
    .action(async (options: { json?: boolean }) => {
      const { listKinds, kindsTable } = await import('../sandbox/list-kinds.ts');
      const kinds = await listKinds();
      console.log(options.json ? JSON.stringify({ kinds }, null, 2) : kindsTable(kinds));
    });
  sandbox
    .command('test [kind]')
    .description(
      'try on this machine each sentence that a kind of sandbox must keep: limits, isolation, networks, files, ends; exit code 4 when one fails. A kind is a name of `sandbox list`, or the path of a module of your own whose default export makes a SandboxBackend',
    )
    .option(
      '--run <file>',
      'with the settings and the image that `sandbox` of this run file names; the kind may then be left out. A module of your own is given them as its argument',
    )
    .option('--runtime <name>', 'for `container`, without --run: the runtime, such as runsc')
    .option('--large', 'also copy 100,000 files and a file of 1 GB (needs 2 GB of disk)')
    .option('--json', 'as JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate sandbox test bubblewrap\n  $ npx trialgate sandbox test --run my-run/run.yaml\n  $ npx trialgate sandbox test container --runtime runsc\n  $ npx trialgate sandbox test ./my-sandbox.ts --json',
    )
    .action(async (kind: string | undefined, options: TestOptions) => {
      const [{ testKind }, { shutdownSignal }, { EXIT }] = await Promise.all([
        import('../sandbox/test-kind.ts'),
        import('../signals.ts'),
        import('../exit.ts'),
      ]);
      const report = await testKind(kind, options, shutdownSignal(), options.json ? () => {} : console.log);
      if (options.json) console.log(JSON.stringify(report, null, 2));
      if (report.failed > 0) process.exitCode = EXIT.failed;
    });
  addSettings(sandbox.command('serve'), ['home', 'unsandboxed'])
    .description(
      'give sandboxes to a program of another language: it writes a line of JSON for each request to the standard input, and reads a line for each answer; docs/sandboxes.md has the requests. At the end of the input all sandboxes are removed',
    )
    .option('--kind <kind>', 'a name of `sandbox list`', 'bubblewrap')
    .addHelpText(
      'after',
      '\nExamples:\n  $ (echo \'{"id": 1, "do": "start", "task": "/tasks/one"}\'; cat) | npx trialgate sandbox serve\n  $ npx trialgate sandbox serve --kind container',
    )
    .action(async ({ kind }: { kind: string }, command: Command) => {
      const [{ config }, { serveKind }, { shutdownSignal }] = await Promise.all([
        settingsOf(command),
        import('../sandbox/serve-kind.ts'),
        import('../signals.ts'),
      ]);
      await serveKind(kind, config, shutdownSignal());
    });
}
