/** Writes a value as Python's `json.dumps(value, ensure_ascii=False)` does. Some numbers, such as 1.0, differ. */
export function pythonJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(pythonJson).join(', ')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  return `{${Object.entries(value)
    .map(([key, each]) => `${JSON.stringify(key)}: ${pythonJson(each)}`)
    .join(', ')}}`;
}
