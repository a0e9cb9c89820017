import { flagOf, SETTING_KEYS, settingOf } from '../config/settings.ts';
import { shownText, withoutSecrets } from '../config/show-setting.ts';
import type { Asked } from '../options.ts';
import type { Difference } from './running-settings.ts';

/** Returns the command that starts a deployment with the flags that were given and with these settings as they ran, without the values of secrets. */
export function upCommand({ flags, file }: Pick<Asked, 'flags' | 'file'>, as: readonly Difference[] = []): string {
  const ran = Object.fromEntries(as.map(({ key, running }) => [key, shownText(key, running)]));
  const given = SETTING_KEYS.flatMap((key) => {
    const value = flags[key] ?? ran[key];
    if (value === undefined) return [];
    const { secret, placeholder } = settingOf(key);
    return `${flagOf(key)} ${secret ? placeholder : quoted(withoutSecrets(value))}`;
  });
  return ['npx trialgate up', ...(file === undefined ? [] : [`--config ${quoted(file)}`]), ...given].join(' ');
}

/** Returns a word as a shell takes it. */
export const quoted = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
