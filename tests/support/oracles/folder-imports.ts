import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';

export type SourceFile = readonly [file: string, text: string];

/** Returns a folder's TypeScript files with their text, without tests. */
export const sourceFiles = (folder: string): SourceFile[] =>
  globSync('**/*.ts', { cwd: folder, exclude: ['**/*.test.ts'] }).map((file) => [
    file,
    readFileSync(path.join(folder, file), 'utf8'),
  ]);

/** Returns the folder of a file. Files that all folders share are in none. */
const folderOf = (file: string): string => (file.includes('/') ? file.slice(0, file.indexOf('/')) : 'the shared files');

/** Returns which folders each folder imports, types included. */
export function importsOf(sources: readonly SourceFile[]): Map<string, Set<string>> {
  const imports = new Map<string, Set<string>>();
  for (const [file, text] of sources) {
    const from = folderOf(file);
    const imported = imports.get(from) ?? new Set();
    imports.set(from, imported);
    for (const [, specifier = ''] of text.matchAll(/(?:from |import\()'(\.{1,2}\/[^']+)'/g)) {
      const target = path.posix.join(path.posix.dirname(file), specifier);
      if (!target.startsWith('..') && folderOf(target) !== from) imported.add(folderOf(target));
    }
  }
  return imports;
}

/** Returns the folders that depend on themselves over others. */
export function foldersInCycles(imports: ReadonlyMap<string, ReadonlySet<string>>): string[] {
  const reachableFrom = (start: string): Set<string> => {
    const reached = new Set<string>();
    const open = [start];
    for (let folder = open.pop(); folder !== undefined; folder = open.pop()) {
      for (const next of imports.get(folder) ?? []) {
        if (reached.has(next)) continue;
        reached.add(next);
        open.push(next);
      }
    }
    return reached;
  };
  return [...imports.keys()].filter((folder) => reachableFrom(folder).has(folder)).toSorted();
}
