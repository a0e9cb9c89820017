import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';
import { settingOf, SETTING_KEYS, variableOf } from '../config/settings.ts';

export function register(root: Command): void {
  addSettings(root.command('config'))
    .description('print the settings in force and the source of each')
    .option('--json', 'as JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate config\n  $ TRIALGATE_GATEWAY_PORT=9000 npx trialgate config --json',
    )
    .action(async (options: { json?: boolean }, command: Command) => {
      const { config, origins } = await settingsOf(command);
      const rows = SETTING_KEYS.map((key) => ({
        key,
        value: shown(key, config[key]),
        from: origins[key] ?? 'not set',
      }));
      if (options.json) {
        console.log(
          JSON.stringify(Object.fromEntries(rows.map(({ key, value, from }) => [key, { value, from }])), null, 2),
        );
        return;
      }
      const width = Math.max(...rows.map(({ key }) => key.length));
      for (const { key, value, from } of rows) {
        const text = value === null ? '–' : Array.isArray(value) ? value.join(', ') || '–' : String(value);
        console.log(`${key.padEnd(width)}  ${text}  (${from === 'not set' ? `not set; ${variableOf(key)}` : from})`);
      }
    });
}

function shown(key: (typeof SETTING_KEYS)[number], value: unknown): unknown {
  if (value === undefined) return null;
  return settingOf(key).secret ? '********' : value;
}
