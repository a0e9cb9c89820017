import { REPOSITORY } from '../../../core/repository.ts';
import { capture } from '../capture.ts';
import { failed, notChecked, passed, type Verdict } from '../check.ts';
import { brokenReferences } from './broken-references.ts';

/** Checks the links between documents, cited invariants, and the files that docs/invariants.md names. Includes files that are not committed yet. */
export async function references(signal: AbortSignal): Promise<Verdict> {
  const { code, stdout } = await capture(
    ['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'],
    signal,
  );
  if (code !== 0) return notChecked('this folder is not a Git repository');
  const broken = brokenReferences(REPOSITORY, stdout.split('\0').filter(Boolean));
  return broken.length === 0 ? passed('') : failed(`${broken.length} references lead nowhere`, broken);
}
