import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CHECKS } from '../../activities/sandbox/conformance/checks.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { isSandboxKind, SANDBOX_KINDS, type SandboxKind } from '../../core/run-config/sandbox.ts';

const head = z.object({ machine: z.string(), date: z.string(), commit: z.string() });

/** What `bench/sandbox-conformance.ts` printed for one kind. */
type Result = z.output<typeof head> & { kind: SandboxKind; statement: string; lines: string[] };

/** Returns the table of docs/sandboxes.md: each sentence that a kind must keep, with the newest result of each kind. */
export function conformanceTable(files: readonly string[] = resultFiles()): string {
  const results = files.flatMap(resultsIn).toSorted((one, other) => one.date.localeCompare(other.date));
  const newest = SANDBOX_KINDS.map((kind) => results.findLast((result) => result.kind === kind) ?? null);
  const rows = CHECKS.map(({ sentence, isLarge }) => [
    `${sentence}${isLarge ? ' (`--large`)' : ''}`,
    ...newest.map((result) => (result === null ? NOT_TRIED : stateOf(sentence, result))),
  ]);
  const kinds = SANDBOX_KINDS.map((kind) => `\`${kind}\``);
  return [
    row(['what must hold', ...kinds]),
    row(['---', ...kinds.map(() => '---')]),
    ...rows.map(row),
    '',
    ...newest.map((result, index) => `- ${kinds[index]}: ${result === null ? 'no result.' : described(result)}`),
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
  const sections = file.slice(end).trim().split(/\n\n/);
  return sections.flatMap((section) => {
    const [kind = '', statement = '', ...lines] = section.split('\n');
    return isSandboxKind(kind) ? [{ ...provenance, kind, statement, lines }] : [];
  });
}

const NOT_TRIED = 'not tried';
/** The words for the outcomes of a check. One that could not be made says nothing about the kind. */
const STATES = { passed: 'holds', failed: '**fails**', skipped: 'refused', error: NOT_TRIED } as const;
const LINE = /^(passed|failed|skipped|error) +[\d.]+ s {2}(.*)$/;

function stateOf(sentence: string, { lines }: Result): string {
  for (const line of lines) {
    const [, outcome, rest = ''] = LINE.exec(line) ?? [];
    if (rest !== sentence && !rest.startsWith(`${sentence}: `)) continue;
    if (outcome === 'passed' || outcome === 'failed' || outcome === 'skipped' || outcome === 'error')
      return STATES[outcome];
  }
  return NOT_TRIED;
}

const row = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;

const described = ({ date, machine, commit, statement }: Result): string =>
  `${date.slice(0, 10)}, ${machine}, commit ${commit}. ${statement}`;
