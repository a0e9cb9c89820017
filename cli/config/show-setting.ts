import { settingOf, type SettingKey } from './settings.ts';

/** Returns a setting's value for people: null if it is not set, and never a secret. */
export function shownValue(key: SettingKey, value: unknown): unknown {
  if (value === undefined || value === null) return null;
  return settingOf(key).secret ? '********' : value;
}

const SECRET_ARGUMENT = /(--\S*(?:token|key|secret|password)[= ])\S+/g;

export function shownText(key: SettingKey, value: unknown): string {
  const shown = shownValue(key, value);
  if (shown === null) return '–';
  if (!Array.isArray(shown)) return String(shown);
  if (settingOf(key).from === 'list') return shown.join(', ') || '–';
  // Arguments of an engine may have a secret, such as --hf-token.
  return shown.join(' ').replace(SECRET_ARGUMENT, '$1********') || '–';
}
