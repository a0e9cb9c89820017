import { Argument, type Command } from 'commander';

export function register(root: Command): void {
  root
    .command('check', { hidden: true })
    .description(
      "check the project's types, style, links between documents, licenses and known vulnerabilities; a check that needs a package index or an installation reports when it is missing",
    )
    .addArgument(
      new Argument(
        '[checks...]',
        'types, lint, format, ruff, ruff-format, references, npm-licenses, python-licenses, npm-vulnerabilities, python-vulnerabilities; all without',
      ),
    )
    .addHelpText('after', '\nExamples:\n  $ npm run check\n  $ npm run check -- npm-licenses python-licenses')
    .action(async (names: string[]) => {
      const [{ CHECK_NAMES, runChecks }, { shutdownSignal }, { TrialgateError }] = await Promise.all([
        import('../checks/run-checks.ts'),
        import('../signals.ts'),
        import('../../core/errors.ts'),
      ]);
      const unknown = names.filter((name) => !CHECK_NAMES.includes(name));
      if (unknown.length > 0)
        throw new TrialgateError(
          'bad_input',
          `there is no check ${unknown.join(', ')}; there are ${CHECK_NAMES.join(', ')}`,
        );
      process.exitCode = await runChecks(names, shutdownSignal());
    });
}
