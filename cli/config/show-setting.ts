import { settingOf, type SettingKey } from './settings.ts';

/** Returns a setting's value for people: null if it is not set, and never a secret. */
export function shownValue(key: SettingKey, value: unknown): unknown {
  if (value === undefined || value === null) return null;
  const { secret, from } = settingOf(key);
  if (secret) return '********';
  return Array.isArray(value) && from !== 'list' ? withoutSecrets(value.join(' ')).split(' ') : value;
}

export function shownText(key: SettingKey, value: unknown): string {
  const shown = shownValue(key, value);
  if (shown === null) return '–';
  return Array.isArray(shown) ? shown.join(settingOf(key).from === 'list' ? ', ' : ' ') || '–' : String(shown);
}

/** Hides the values of secret arguments of an engine, such as `--hf-token`. */
export const withoutSecrets = (text: string): string =>
  text.replace(/(--\S*(?:token|key|secret|password))(?:[= ](?!--)\S+)+/g, '$1 SECRET');
