import { TrialgateError } from '../core/errors.ts';

const UNITS: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400 };

/** Returns the seconds of a duration such as `90s`, `30m`, `1h30m` or `2d`. @throws TrialgateError `bad_input` */
export function secondsOf(text: string): number {
  if (!/^(\d+(\.\d+)?[smhd])+$/.test(text)) throw refusal(text);
  const parts = text.matchAll(/([\d.]+)([smhd])/g);
  const seconds = [...parts].reduce((sum, [, count, unit]) => sum + Number(count) * (UNITS[unit ?? ''] ?? 0), 0);
  if (seconds <= 0) throw refusal(text);
  return seconds;
}

const refusal = (text: string) =>
  new TrialgateError('bad_input', `expected a duration such as 90s, 10m or 1h30m, found ${JSON.stringify(text)}`);
