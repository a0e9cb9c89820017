import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';

export function register(root: Command): void {
  addSettings(root.command('doctor'))
    .description('check this machine for prerequisites; exit code 3 when one is missing')
    .option('--json', 'as JSON')
    .addHelpText('after', '\nExamples:\n  $ npx trialgate doctor\n  $ npx trialgate doctor --json --device cuda')
    .action(async (options: { json?: boolean }, command: Command) => {
      const asked = await settingsOf(command);
      const [{ examine }, { EXIT }] = await Promise.all([import('../doctor/examine.ts'), import('../exit.ts')]);
      const findings = await examine(asked);
      if (options.json) console.log(JSON.stringify(findings, null, 2));
      else
        for (const { check, result, finding } of findings)
          console.log(`${result.padEnd(7)}  ${check.padEnd(14)}  ${finding}`);
      if (findings.some(({ result }) => result === 'missing')) process.exitCode = EXIT.missingPrerequisite;
    });
}
