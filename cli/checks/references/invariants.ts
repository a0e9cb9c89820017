/** `inGate` has the files of `tests` that `npm test` runs. `named` has every file that the section names, including those of `code` and `tests`. */
export type Invariant = { number: number; code: string[]; tests: string[]; inGate: string[]; named: string[] };

/** Returns the numbered sections of the page of invariants. */
export function readInvariants(page: string): Invariant[] {
  return [...page.matchAll(/^## (\d+)\. .*\n([^]*?)(?=^## |$(?![^]))/gm)].map(([, number, section = '']) => ({
    number: Number(number),
    code: filesIn(/^- Code: .*$/m.exec(section)?.[0] ?? ''),
    tests: filesIn(section.match(/^- Tests in .*$/gm)?.join() ?? ''),
    inGate: filesIn(/^- Tests in `npm test`: .*$/m.exec(section)?.[0] ?? ''),
    named: filesIn(section),
  }));
}

const filesIn = (text: string): string[] =>
  [...text.matchAll(/`([\w.-]+(?:\/[\w.-]+)+\.\w+)`/g)].map(([, file = '']) => file);

/** Returns the numbers in "invariant 7" and "invariants 1, 5 and 7", even if a comment's line breaks before the number. */
export function citedInvariants(text: string): number[] {
  const lines = text.replaceAll(/\n[ \t]*(?:\*|\/\/|#)?[ \t]*/g, ' ');
  return [...lines.matchAll(/\binvariants?\]? (\d+(?:(?:, | and |, and )\d+)*)/gi)].flatMap(([, numbers = '']) =>
    (numbers.match(/\d+/g) ?? []).map(Number),
  );
}
