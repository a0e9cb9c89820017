import { REPOSITORY } from '../../core/repository.ts';
import { table } from '../../cli/show/table.ts';
import type { Figures } from './measure.ts';

export type Row = { cell: string; case: string; target: string; repeat: number; figures: Figures };

/** A column has the median over the repeats, or with `sum` their sum; with `spread` also (largest − smallest) / median. */
export type Column = { key: string; title: string; digits?: number; spread?: true; sum?: true };

/** Keeps every repeat's figures and prints each cell's table when it is done. */
export class Report {
  readonly rows: Row[] = [];
  readonly #print: (text: string) => void;
  readonly #text: string[] = [];

  constructor(print: (text: string) => void) {
    this.#print = print;
  }

  get text(): string {
    return this.#text.join('\n');
  }

  add(row: Row, shown: readonly string[]): void {
    this.rows.push(row);
    const figures = shown.flatMap((key) =>
      row.figures[key] === undefined ? [] : [`${key} ${shortly(row.figures[key])}`],
    );
    this.#print(`  ${row.cell} ${row.case} ${row.target} ${row.repeat}: ${figures.join(', ')}`);
  }

  /** Prints a line and keeps it for the result file. */
  print(line: string): void {
    const shown = line.replaceAll(`${REPOSITORY}/`, '');
    this.#text.push(shown);
    this.#print(shown);
  }

  summarize(
    cell: string,
    about: string,
    columns: readonly Column[],
    isShown: (row: Row) => boolean = () => true,
  ): void {
    const own = this.rows.filter((row) => row.cell === cell && isShown(row));
    const groups = Map.groupBy(own, (row) => JSON.stringify([row.case, row.target]));
    const used = columns.filter(({ key }) => own.some((row) => row.figures[key] !== undefined));
    const lines = [...groups.values()].map((rows) => [
      rows[0]?.case ?? '',
      rows[0]?.target ?? '',
      ...used.flatMap((column) => cells(column, rows)),
    ]);
    const header = ['case', 'target', ...used.flatMap(({ title, spread }) => (spread ? [title, '± %'] : [title]))];
    this.print(`\n${cell}: ${about}\n${table(header, lines)}\n`);
  }
}

function cells({ key, digits = 0, spread, sum }: Column, rows: readonly Row[]): string[] {
  const values = rows.map(({ figures }) => figures[key]).filter((value) => value !== undefined);
  if (values.length === 0) return spread ? ['–', '–'] : ['–'];
  if (sum) return [values.reduce((total, value) => total + value, 0).toFixed(digits)];
  const middle = median(values);
  return spread
    ? [
        middle.toFixed(digits),
        middle === 0 ? '–' : ((100 * (Math.max(...values) - Math.min(...values))) / Math.abs(middle)).toFixed(0),
      ]
    : [middle.toFixed(digits)];
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = (sorted.length - 1) / 2;
  return ((sorted[Math.floor(middle)] ?? 0) + (sorted[Math.ceil(middle)] ?? 0)) / 2;
}

const shortly = (value: number): string => (Number.isInteger(value) ? String(value) : value.toPrecision(4));
