import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CHECKS, type Check } from '../../activities/sandbox/conformance/checks.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { isSandboxKind, SANDBOX_KINDS, type SandboxKind } from '../../core/run-config/sandbox.ts';

const head = z.object({ machine: z.string(), date: z.string() });

/** Printed after the name of a kind that was tried on a fake. Such a result is not in the table, because it says nothing about a real cluster. */
export const ON_A_FAKE = ' on a fake cluster';

/** A section begins with the name of its kind. The explanation of a failure may have blank lines too. */
const BEFORE_A_KIND = new RegExp(`\\n\\n(?=(?:${SANDBOX_KINDS.join('|')})(?:${ON_A_FAKE})?\\n)`);

/** What `bench/sandbox-conformance.ts` printed for one kind. */
type Result = z.output<typeof head> & { kind: SandboxKind; statement: string; lines: string[] };

/** Returns the table of docs/sandboxes.md: each sentence that a kind must keep, with what the newest result that tried it says. */
export function conformanceTable(files: readonly string[] = resultFiles()): string {
  const results = files.flatMap(resultsIn).toSorted((one, other) => other.date.localeCompare(one.date));
  const byKind = SANDBOX_KINDS.map((kind) => results.filter((result) => result.kind === kind));
  const decided = byKind.map((ofKind) => CHECKS.map((check) => decide(check, ofKind)));
  const rows = CHECKS.map(({ sentence, isLarge }, index) => [
    `${sentence}${isLarge ? ' (`--large`)' : ''}`,
    ...decided.map((ofKind) => ofKind[index]?.state ?? NOT_TRIED),
  ]);
  const kinds = SANDBOX_KINDS.map((kind) => `\`${kind}\``);
  return [
    row(['what must hold', ...kinds]),
    row(['---', ...kinds.map(() => '---')]),
    ...rows.map(row),
    '',
    ...decided.flatMap((ofKind, index) => sourcesOf(ofKind).map((text) => `- ${kinds[index]}: ${text}`)),
  ].join('\n');
}

const resultFiles = (): string[] =>
  globSync('bench/results/sandbox-conformance*.txt', { cwd: REPOSITORY }).map((file) =>
    readFileSync(join(REPOSITORY, file), 'utf8'),
  );

/** Reads a result file: a head in JSON, then for each kind its name, its statement and a line for each check. */
function resultsIn(file: string): Result[] {
  const end = file.indexOf('\n}\n') + 2;
  const provenance = head.parse(JSON.parse(file.slice(0, end)));
  const sections = file.slice(end).trim().split(BEFORE_A_KIND);
  return sections.flatMap((section) => {
    const [kind = '', statement = '', ...lines] = section.split('\n');
    return isSandboxKind(kind) ? [{ ...provenance, kind, statement, lines }] : [];
  });
}

const NOT_TRIED = 'not tried';
/** The words for the outcomes of a check. One that could not be made (`error`) says nothing about the kind. */
const STATES = { passed: 'holds', failed: '**fails**', skipped: 'refused' } as const;
const LINE = /^(passed|failed|skipped) +[\d.]+ s {2}(.*)$/;

/** A cell of the table: what is known about a sentence, and from which result. */
type Cell = { check: Check; state: string; result: Result };

/** `results` are those of one kind, the newest first. Returns null when none tried the sentence. */
function decide(check: Check, results: readonly Result[]): Cell | null {
  for (const result of results)
    for (const line of result.lines) {
      const [, outcome, rest = ''] = LINE.exec(line) ?? [];
      if (rest !== check.sentence && !rest.startsWith(`${check.sentence}: `)) continue;
      if (outcome === 'passed' || outcome === 'failed' || outcome === 'skipped')
        return { check, state: STATES[outcome], result };
    }
  return null;
}

/** Describes the results from which the cells of one kind come, the newest first. Each but the first says which cells these are. */
function sourcesOf(cells: readonly (Cell | null)[]): string[] {
  const byResult = Map.groupBy(
    cells.filter((cell) => cell !== null),
    ({ result }) => result,
  );
  if (byResult.size === 0) return ['no result.'];
  return [...byResult]
    .toSorted(([one], [other]) => other.date.localeCompare(one.date))
    .map(([{ date, machine, statement }, own], index) => {
      const names = own.map(({ check }) => (check.isLarge ? '`--large`' : `“${check.sentence}”`));
      return `${date.slice(0, 10)}, ${machine}${index === 0 ? '' : `, only for ${names.join(', ')}`}. ${statement}`;
    });
}

const row = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
