import { InvalidArgumentError, Option, type Command } from 'commander';
import { addSettings, settingsOf } from '../../cli/options.ts';
import { ALL_AREAS, GATE_AREAS, type Area } from './suites.ts';

const LIMIT_MINUTES = { gate: 45, all: 240 };

export function register(root: Command): void {
  addSettings(root.command('test', { hidden: true }), ['device', 'python'])
    .description("run the project's own tests: the gate, or with --all the full set")
    .option('--all', 'the full set: long tests and many, by areas that --only names', false)
    .addOption(new Option('--only <areas...>', `some areas (the gate: ${GATE_AREAS.join(', ')})`).choices(ALL_AREAS))
    .option(
      '--limit <minutes>',
      `end all tests after this time (${LIMIT_MINUTES.gate}; with --all ${LIMIT_MINUTES.all})`,
      minutes,
    )
    .option('--any-machine', 'begin also where processors, memory, disk or load are said to be too little', false)
    .addHelpText(
      'after',
      '\nExamples:\n  $ npm test\n  $ npm run test:fast\n  $ npm test -- --only temporal\n  $ npm run test:all -- --only sandboxes',
    )
    .action(async (options: { all: boolean; only?: Area[]; limit?: number; anyMachine: boolean }, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ runTests }, { shutdownSignal }] = await Promise.all([
        import('./run-tests.ts'),
        import('../../cli/signals.ts'),
      ]);
      // An area that the gate does not have is one of the full set.
      const all = options.all || (options.only?.some((area) => !GATE_AREAS.some((each) => each === area)) ?? false);
      const limitMinutes = options.limit ?? LIMIT_MINUTES[all ? 'all' : 'gate'];
      const { device, python } = config;
      process.exitCode = await runTests({ ...options, all, limitMinutes, device, python }, shutdownSignal());
    });
}

function minutes(text: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new InvalidArgumentError('a number of minutes above 0 is needed');
  return value;
}
