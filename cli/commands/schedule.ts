import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('schedule [run[@version]]'), ['home'])
    .description('evaluate a run regularly, for example every night; without --cron and --remove, list the schedules')
    .option('--cron <expression>', 'times as a cron expression, in UTC')
    .option('--timezone <name>', 'time zone of the cron expression, such as Europe/Berlin')
    .option('--samples <n>', "trials a task (default: the run file's `evaluation.samples`)")
    .option('--tasks <folders...>', "held-out tasks (default: the run file's `evaluation.tasks`)")
    .option('--remove', "remove the run's schedule")
    .option('--json', 'as JSON')
    .addHelpText(
      'after',
      "\nExamples:\n  $ npx trialgate schedule first --cron '0 3 * * *'\n  $ npx trialgate schedule\n  $ npx trialgate schedule first --remove",
    )
    .action(async (policy: string | undefined, options: Options, command: Command) => {
      const { config } = await settingsOf(command);
      const [{ evaluationRequest }, schedules, { withDeployment }, { printSchedules }] = await Promise.all([
        import('../run/evaluation-request.ts'),
        import('../run/schedule-evaluations.ts'),
        import('../run/connect.ts'),
        import('../show/print-schedules.ts'),
      ]);
      const request = policy === undefined ? undefined : evaluationRequest(policy, options);
      await withDeployment(config, async (connected) => {
        const { cron, timezone } = options;
        if (request && options.remove) await schedules.removeSchedule(connected.client, request.runId);
        else if (request && cron !== undefined)
          await schedules.scheduleEvaluations(connected, request, { cron, timezone });
        else if (options.remove || cron !== undefined)
          return command.error(
            'error: --cron and --remove need a run, such as: npx trialgate schedule first --remove',
            {
              exitCode: 2,
            },
          );
        const all = await schedules.listSchedules(connected.client);
        console.log(
          printSchedules(request ? all.filter(({ run }) => run === request.runId) : all, options.json ?? false),
        );
      });
    });
}

type Options = {
  cron?: string;
  timezone?: string;
  samples?: string;
  tasks?: string[];
  remove?: boolean;
  json?: boolean;
};
