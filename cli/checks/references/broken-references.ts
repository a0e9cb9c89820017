import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { citedInvariants, readInvariants } from './invariants.ts';
import { headingsOf, linksIn } from './links.ts';

const INVARIANTS = 'docs/invariants.md';
const CITING = /\.(?:ts|mjs|py|md)$/;
const TEST = /(?:\.test\.ts|_test\.py)$/;

/**
 * Returns a sentence for each reference in the repository that leads nowhere: a link between its documents, an invariant that the code
 * cites, or a file that the page of invariants names.
 */
export function brokenReferences(repository: string, tracked: readonly string[]): string[] {
  // A file that was deleted stays listed until the deletion is committed.
  const files = new Set(tracked.filter((file) => existsSync(path.join(repository, file))));
  const folders = new Set([...files].flatMap(foldersOf));
  const read = (file: string): string => readFileSync(path.join(repository, file), 'utf8');
  return [...brokenLinks(), ...brokenCitations(), ...unknownFiles()];

  function brokenLinks(): string[] {
    return [...files]
      .filter((file) => file.endsWith('.md'))
      .flatMap((document) =>
        linksIn(read(document)).flatMap(({ link, target, section }) => {
          const file =
            target === '' ? document : path.posix.join(path.posix.dirname(document), target).replace(/\/$/, '');
          if (!files.has(file) && !folders.has(file))
            return [`${document}: ${link} leads to ${file}, which is not in the repository`];
          if (section === null || !file.endsWith('.md') || headingsOf(read(file)).includes(section)) return [];
          return [`${document}: ${link} leads to a heading that ${file} does not have`];
        }),
      );
  }

  function brokenCitations(): string[] {
    const known = new Set(readInvariants(read(INVARIANTS)).map(({ number }) => number));
    return [...files]
      .filter((file) => CITING.test(file))
      .flatMap((file) =>
        citedInvariants(read(file))
          .filter((number) => !known.has(number))
          .map((number) => `${file}: cites invariant ${number}, which ${INVARIANTS} does not have`),
      );
  }

  function unknownFiles(): string[] {
    return readInvariants(read(INVARIANTS)).flatMap(({ number, code, tests, inGate, named }, position) => {
      const where = `${INVARIANTS}: invariant ${number}`;
      return [
        ...(number === position + 1 ? [] : [`${where} stands where ${position + 1} is expected`]),
        ...(code.length > 0 ? [] : [`${where} names no code`]),
        ...(inGate.some((file) => TEST.test(file)) ? [] : [`${where} names no test in \`npm test\``]),
        ...tests.filter((file) => !TEST.test(file)).map((file) => `${where} names ${file} as a test, which is none`),
        ...named
          .filter((file) => !files.has(file))
          .map((file) => `${where} names ${file}, which is not in the repository`),
      ];
    });
  }
}

function foldersOf(file: string): string[] {
  const parts = file.split('/').slice(0, -1);
  return parts.map((_, length) => parts.slice(0, length + 1).join('/'));
}
