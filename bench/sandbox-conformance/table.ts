import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CHECKS } from '../../activities/sandbox/conformance/checks.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { isSandboxKind, SANDBOX_KINDS, type SandboxKind } from '../../core/run-config/sandbox.ts';

const head = z.object({ machine: z.string(), date: z.string(), commit: z.string() });

/** What `bench/sandbox-conformance.ts` printed for one kind. */
type Result = z.output<typeof head> & { kind: SandboxKind; statement: string; lines: string[] };

/** Returns the table of docs/sandboxes.md: each sentence that a kind must keep, with what the newest result that tried it says. */
export function conformanceTable(files: readonly string[] = resultFiles()): string {
  const results = files.flatMap(resultsIn).toSorted((one, other) => other.date.localeCompare(one.date));
  const byKind = SANDBOX_KINDS.map((kind) => results.filter((result) => result.kind === kind));
  const rows = CHECKS.map(({ sentence, isLarge }) => [
    `${sentence}${isLarge ? ' (`--large`)' : ''}`,
    ...byKind.map((ofKind) => stateOf(sentence, ofKind)),
  ]);
  const kinds = SANDBOX_KINDS.map((kind) => `\`${kind}\``);
  return [
    row(['what must hold', ...kinds]),
    row(['---', ...kinds.map(() => '---')]),
    ...rows.map(row),
    '',
    ...byKind.flatMap((ofKind, index) =>
      (ofKind.length === 0 ? ['no result.'] : ofKind.map(described)).map((text) => `- ${kinds[index]}: ${text}`),
    ),
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
/** The words for the outcomes of a check. One that could not be made (`error`) says nothing about the kind. */
const STATES = { passed: 'holds', failed: '**fails**', skipped: 'refused' } as const;
const LINE = /^(passed|failed|skipped) +[\d.]+ s {2}(.*)$/;

/** `results` are those of one kind, the newest first. */
function stateOf(sentence: string, results: readonly Result[]): string {
  for (const line of results.flatMap(({ lines }) => lines)) {
    const [, outcome, rest = ''] = LINE.exec(line) ?? [];
    if (rest !== sentence && !rest.startsWith(`${sentence}: `)) continue;
    if (outcome === 'passed' || outcome === 'failed' || outcome === 'skipped') return STATES[outcome];
  }
  return NOT_TRIED;
}

const row = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;

const described = ({ date, machine, commit, statement }: Result): string =>
  `${date.slice(0, 10)}, ${machine}, commit ${commit}. ${statement}`;
