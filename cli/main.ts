import { Command, CommanderError } from 'commander';
import { verbs } from './commands/verbs.ts';
import { EXIT, report } from './exit.ts';

const EXAMPLES = `
Examples:
  $ npm run quickstart                 install, start, train a small model, stop
  $ npx trialgate doctor               check what is missing on this machine
  $ npx trialgate up                   start everything in the background
  $ npx trialgate train run.yaml       train
  $ npx trialgate show RUN             show its iterations, rewards, policy versions
  $ npx trialgate down                 stop everything

Settings: flags, TRIALGATE_… variables, trialgate.yaml; \`npx trialgate config\` shows them all.
Exit codes: 0 done, 1 an attack pays (try --attack), 2 bad input, 3 missing prerequisite, 4 a run or a trial failed, 130 interrupted.`;

export function program(registers: readonly ((root: Command) => void)[] = verbs): Command {
  const root = new Command('trialgate')
    .description('Trains a language model on the work of agents that know nothing about training.')
    .addHelpText('after', EXAMPLES)
    .showHelpAfterError('(--help shows how)')
    .exitOverride();
  for (const register of registers) register(root);
  return root;
}

/** Runs the verb in `argv` and returns the exit code. */
export async function main(argv: string[], registers = verbs): Promise<number> {
  try {
    await program(registers).parseAsync(argv, { from: 'user' });
    return Number(process.exitCode ?? EXIT.done);
  } catch (error) {
    if (!(error instanceof CommanderError)) {
      const code = report(error);
      if (code === EXIT.missingPrerequisite) await tellOfInstall();
      return code;
    }
    return error.exitCode === 0 ? EXIT.done : EXIT.badInput;
  }
}

/** What is missing may be on its way. */
async function tellOfInstall(): Promise<void> {
  const { otherInstall } = await import('./install/other-install.ts');
  const other = otherInstall();
  if (other !== null) console.error(other);
}

/** Runs the `trialgate` command, or another with the given verbs, in this process and exits. */
export async function start(registers = verbs): Promise<void> {
  stopWithLauncher();
  // A reader such as `head` may close the pipe early.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
  const code = await main(process.argv.slice(2), registers);
  // The process exits when the verb has ended, even if a timer or connection is still open.
  await Promise.all(
    [process.stdout, process.stderr].map((stream) => new Promise((written) => stream.write('', written))),
  );
  process.exit(code);
}

/** Stops this process when the launcher's channel closes, because then the launcher was killed. */
function stopWithLauncher(): void {
  if (!process.channel) return;
  process.on('disconnect', () => process.kill(process.pid, 'SIGTERM'));
  process.channel.unref();
}

if (import.meta.main) await start();
