/** The load that an engine reports of itself. A field is null when the engine does not report it. */
export type EngineLoad = {
  running: number;
  waiting: number;
  /** The part of the KV cache that calls have in use, from 0 to 1. */
  kvUse: number | null;
  /** The size of the KV cache in tokens. */
  kvTokens: number | null;
  /** Tokens of prompts since its start, and those of them that were cached. */
  prefix: { queries: number; hits: number } | null;
};

export type Sample = { labels: ReadonlyMap<string, string>; value: number };

/** The samples of a page in Prometheus' text format, by metric. */
export type Samples = ReadonlyMap<string, readonly Sample[]>;

const MAX_LINES = 100_000;
const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** Reads the metrics with one of these names from a page in Prometheus' text format. */
export function samplesOf(page: string, names: ReadonlySet<string>): Samples {
  const samples = new Map<string, Sample[]>();
  for (const line of page.split('\n', MAX_LINES)) {
    const [, name = '', labels = '', text = ''] = LINE.exec(line) ?? [];
    const value = Number(text);
    if (!names.has(name) || !Number.isFinite(value)) continue;
    const sample = { labels: new Map([...labels.matchAll(LABEL)].map(([, key = '', of = '']) => [key, of])), value };
    const known = samples.get(name);
    if (known) known.push(sample);
    else samples.set(name, [sample]);
  }
  return samples;
}
