import type { Command } from 'commander';
import { TrialgateError } from '../core/errors.ts';
import type { Flags, ResolvedConfig } from './config/resolve.ts';
import { SETTINGS, flagOf, settingOf, variableOf, type SettingKey } from './config/settings.ts';

export const ALL_SETTINGS = Object.keys(SETTINGS).filter((key): key is SettingKey => key in SETTINGS);

/** Adds `--config` and a flag for each setting. `aliases` are short names of flags, such as `--port`. */
export function addSettings(
  command: Command,
  keys: readonly SettingKey[] = ALL_SETTINGS,
  aliases: Partial<Record<SettingKey, string>> = {},
): Command {
  command.option('--config <file>', 'configuration file (default: trialgate.yaml, if it exists)');
  for (const key of keys) {
    const { about, placeholder } = settingOf(key);
    const fallback = settingOf(key).default;
    const shown = fallback === undefined || Array.isArray(fallback) ? '' : `, default ${String(fallback)}`;
    // `--unsandboxed` without a value means true.
    const argument = settingOf(key).default === false ? `[${placeholder}]` : `<${placeholder}>`;
    command.option(`${aliases[key] ?? flagOf(key)} ${argument}`, `${about} (${variableOf(key)}${shown})`);
  }
  return command;
}

/** The settings that a user asks for, with the flags and the name of the file that were given. */
export type Asked = ResolvedConfig & { flags: Flags; file: string | undefined };

/** Returns the settings in force for a verb whose options came from `addSettings`. */
export async function settingsOf(
  command: Command,
  aliases: Partial<Record<SettingKey, string>> = {},
  more: Flags = {},
): Promise<Asked> {
  const { resolveConfig } = await import('./config/resolve.ts');
  const options: Record<string, unknown> = command.opts();
  const flags: Flags = { ...more };
  for (const key of ALL_SETTINGS) {
    const value = options[attributeOf(aliases[key] ?? flagOf(key))];
    if (typeof value === 'string' || value === true) flags[key] = String(value);
  }
  const file = typeof options['config'] === 'string' ? options['config'] : undefined;
  return { ...resolveConfig({ flags, file }), flags, file };
}

/** Returns commander's name for a flag's value: `--gateway-port` is `gatewayPort`. */
const attributeOf = (flag: string): string =>
  flag.replace(/^--/, '').replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());

type Checked = { data: string; error?: undefined } | { data?: undefined; error: { issues: { message: string }[] } };

/** Returns the checked value of an option that is no setting. */
export function valid(option: string, { data, error }: Checked): string {
  if (data !== undefined) return data;
  throw new TrialgateError('bad_input', `${option}: expected ${error?.issues[0]?.message ?? 'another value'}`);
}
