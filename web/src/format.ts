/** Returns a number with about three digits. */
export function short(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (value === 0) return '0';
  if (size >= 0.001 && size < 1) return value.toPrecision(3);
  if (size < 0.001) return value.toExponential(1);
  if (size < 100) return value.toFixed(2).replace(/\.?0+$/, '');
  return Math.round(value).toLocaleString('en');
}

export const reward = (value: number | null | undefined): string =>
  value === null || value === undefined ? '–' : value.toFixed(3);

export const percent = (share: number | null | undefined): string =>
  share === null || share === undefined ? '–' : `${(100 * share).toFixed(0)} %`;

export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7_200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3_600)} h`;
}

/** Returns a duration with two units, for what is compared with others. */
export function exactDuration(seconds: number): string {
  if (seconds < 119.5) return duration(seconds);
  const [unit, of, size] = seconds < 7_199.5 ? ['min', 's', 60] : ['h', 'min', 3_600];
  const parts = Math.round((60 * seconds) / size);
  return parts % 60 === 0 ? `${parts / 60} ${unit}` : `${Math.floor(parts / 60)} ${unit} ${parts % 60} ${of}`;
}

export const ago = (at: number): string => `${duration(Math.max(0, Date.now() / 1_000 - at))} ago`;

export const when = (at: number): string => new Date(at * 1_000).toLocaleString();

/** Returns the label of a tick of an axis. */
export const tick = (value: number): string =>
  value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(1) : Number(value.toPrecision(4)).toLocaleString('en');

/** Returns the last part of a task's path, for `Recorded`. */
export const taskName = (task: string | null): string => task?.split('/').findLast((part) => part !== '') ?? '–';

export const count = (value: number, one: string, many = `${one}s`): string =>
  `${value.toLocaleString('en')} ${value === 1 ? one : many}`;

/** Control characters, and those that are not seen or change the order in which others are shown. */
const UNSEEN = /[\p{Cc}\p{Cf}]/gu;
/** Line breaks and tabs, and the joiner within emoji. */
const HARMLESS = new Set(['\n', '\t', '\u200d']);

/** Makes the control characters of a text visible, which agents and models choose. */
export const visible = (text: string): string =>
  text.replace(UNSEEN, (character) => {
    if (HARMLESS.has(character)) return character;
    const code = character.codePointAt(0) ?? 0;
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, '0')}⟩`;
  });
