import { RowRefused } from './row.ts';

/** Returns the paths of the files that a patch of git's changes, makes, moves or removes. */
export function filesOfPatch(patch: string): string[] {
  const lines = patch.split('\n');
  const paths = lines.flatMap((line) => {
    const found = /^(?:--- (?:"?a\/)|\+\+\+ (?:"?b\/)|rename from |rename to |copy to )(.*?)"?\t?$/.exec(line);
    return found?.[1] === undefined ? [] : [found[1]];
  });
  // Files without lines, such as binary ones, have only this line.
  const named = lines.flatMap((line) => {
    const found = /^diff --git a\/(.+) b\/\1$/.exec(line);
    return found?.[1] === undefined ? [] : [found[1]];
  });
  return [...new Set([...paths, ...named])].toSorted();
}

/**
 * Refuses a patch that `git apply` cannot apply because the data set left out the content of binary files.
 * @throws RowRefused
 */
export function requireWholePatch(patch: string): void {
  const binary = /^Binary files .* differ$/m.exec(patch)?.[0];
  if (binary !== undefined)
    throw new RowRefused(`test_patch: it lacks the content of a file (${binary.slice(0, 200)})`);
}
