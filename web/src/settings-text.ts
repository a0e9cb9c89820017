/** What a person looks for first. The record keeps no order. */
const FIRST = ['model', 'tasks', 'agents', 'reward', 'iterations', 'groups_per_iteration', 'group_size'];

/** Returns a run's settings as YAML for a person to edit: a line a setting, sections as blocks, all else in JSON, which YAML has too. */
export function settingsText(settings: object): string {
  const named = new Map<string, unknown>(Object.entries(settings));
  const first = FIRST.filter((key) => named.has(key));
  const others = [...named.keys()].filter((key) => !FIRST.includes(key)).toSorted();
  return [...first, ...others].map((key) => lineOf(key, named.get(key), '')).join('');
}

function lineOf(key: string, value: unknown, indent: string): string {
  const name = `${indent}${PLAIN.test(key) ? key : JSON.stringify(key)}:`;
  if (typeof value !== 'object' || value === null || Array.isArray(value) || Object.keys(value).length === 0)
    return `${name} ${JSON.stringify(value)}\n`;
  const lines = Object.entries(value).map(([inner, each]) => lineOf(inner, each, `${indent}  `));
  return `${name}\n${lines.join('')}`;
}

/** A key that YAML reads as a text without quotation marks, unlike `null` and `true`. */
const PLAIN = /^(?!(?:null|true|false)$)[a-z][a-z_]*$/;
