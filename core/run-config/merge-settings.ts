type Settings = Record<string, unknown>;

const isSettings = (value: unknown): value is Settings =>
  value !== null && typeof value === 'object' && !Array.isArray(value);

/** Returns settings with some of them changed. Sections are merged; lists and values are replaced. */
export function mergeSettings(settings: Settings, changes: Settings): Settings {
  const changed = Object.entries(changes).map(([key, value]) => {
    const before = settings[key];
    return [key, isSettings(before) && isSettings(value) ? mergeSettings(before, value) : value];
  });
  return { ...settings, ...Object.fromEntries(changed) };
}
