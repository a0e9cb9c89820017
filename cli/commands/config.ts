import type { Command } from 'commander';
import { addSettings, settingsOf } from '../options.ts';
import { SETTING_KEYS, variableOf } from '../config/settings.ts';
import { shownText, shownValue } from '../config/show-setting.ts';

export function register(root: Command): void {
  addSettings(root.command('config'))
    .description(
      'print the settings and the source of each, and what a deployment that is up runs with where that differs',
    )
    .option('--json', 'as JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npx trialgate config\n  $ TRIALGATE_GATEWAY_PORT=9000 npx trialgate config --json',
    )
    .action(async (options: { json?: boolean }, command: Command) => {
      const { config, origins } = await settingsOf(command);
      const [{ livingState }, { differences }] = await Promise.all([
        import('../supervisor/state.ts'),
        import('../supervisor/running-settings.ts'),
      ]);
      const settings = livingState(config.home)?.settings ?? null;
      const others = new Map(
        (settings === null ? [] : differences(config, settings)).map(({ key, running }) => [key, running]),
      );
      const rows = SETTING_KEYS.map((key) => ({ key, value: config[key], from: origins[key] ?? 'not set' }));
      if (options.json) {
        console.log(
          JSON.stringify(
            Object.fromEntries(
              rows.map(({ key, value, from }) => [
                key,
                {
                  value: shownValue(key, value),
                  from,
                  ...(others.has(key) ? { running: shownValue(key, others.get(key)) } : {}),
                },
              ]),
            ),
            null,
            2,
          ),
        );
        return;
      }
      const width = Math.max(...rows.map(({ key }) => key.length));
      for (const { key, value, from } of rows) {
        const source = from === 'not set' ? `not set; ${variableOf(key)}` : from;
        const runs = others.has(key) ? `  [runs with: ${shownText(key, others.get(key))}]` : '';
        console.log(`${key.padEnd(width)}  ${shownText(key, value)}  (${source})${runs}`);
      }
    });
}
