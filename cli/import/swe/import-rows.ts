import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { cacheOf, readRows } from '../../../activities/tasks/read-rows.ts';
import { repositoryUrl } from '../../../activities/repositories/repository-url.ts';
import { TrialgateError } from '../../../core/errors.ts';
import { parseSweRow, RowRefused, type SweRow } from './row.ts';
import { writeSweTask } from './write-task.ts';

export type SweImport = {
  rows: string;
  name?: string | undefined;
  split?: string | undefined;
  limit?: number | undefined;
  /** The new folder. */
  folder: string;
  /** `none`, `row` (the row's own, if it has one), or a name with `{instance_id}` in it. */
  image: string;
  /** A folder with clones, or the beginning of all URLs. */
  repositories: { mirror: string } | { base: string };
  history: boolean;
  shares: boolean;
  /** The deployment's folder, where downloaded data sets are. */
  home: string;
};

export type Imported = { folder: string; tasks: string[]; refused: { row: string; reason: string }[] };

/**
 * Makes a task folder of each row. A row of which none can be made is refused by its name; the others go on.
 * @throws TrialgateError `bad_input` when the folder has files, the rows cannot be read, or no row can be imported
 */
export async function importSweRows(request: SweImport, signal: AbortSignal): Promise<Imported> {
  if (request.limit === 0) throw new TrialgateError('bad_input', '--limit: expected at least 1');
  const folder = resolve(request.folder);
  if ((await readdir(folder).catch(() => [])).length > 0)
    throw new TrialgateError('bad_input', `${folder} has files: name a new folder`);
  await mkdir(folder, { recursive: true });
  const imported: Imported = { folder, tasks: [], refused: [] };
  const { rows, name, split = 'train', limit } = request;
  const source = { rows, split, prompt: '', columns: [], ...(name && { name }), ...(limit && { limit }) };
  for await (const { row, where } of readRows(source, cacheOf(request.home))) {
    signal.throwIfAborted();
    const called = typeof row['instance_id'] === 'string' ? row['instance_id'] : where;
    try {
      await importRow(parseSweRow(row), folder, request);
      imported.tasks.push(called);
    } catch (error) {
      if (!(error instanceof RowRefused)) throw error;
      imported.refused.push({ row: called, reason: error.message });
    }
  }
  const [first] = imported.refused;
  if (imported.tasks.length === 0 && first)
    throw new TrialgateError(
      'bad_input',
      `no row of ${rows} can be imported; the first, ${first.row}: ${first.reason}`,
    );
  return imported;
}

async function importRow(row: SweRow, folder: string, request: SweImport): Promise<void> {
  const place = join(folder, row.instance_id);
  if (existsSync(place)) throw new RowRefused('another row has the same instance_id');
  const settings = { ...request, url: urlOf(row, request.repositories), image: imageOf(row, request.image) };
  // An import that is interrupted leaves no half of a task.
  const draft = await mkdtemp(join(folder, '.importing-'));
  try {
    await writeSweTask(draft, row, settings);
    await rename(draft, place);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

function urlOf({ repo }: SweRow, repositories: SweImport['repositories']): string {
  if ('base' in repositories) return checked(`${repositories.base.replace(/\/$/, '')}/${repo}`);
  const mirror = resolve(repositories.mirror);
  const flat = repo.replace('/', '__');
  const places = [repo, flat].flatMap((name) => [join(mirror, name), join(mirror, `${name}.git`)]);
  const found = places.find((path) => existsSync(path));
  if (found !== undefined) return found;
  throw new RowRefused(`${mirror} has no clone of ${repo}: neither ${repo} nor ${flat}, nor one of these with .git`);
}

function checked(url: string): string {
  const parsed = repositoryUrl.safeParse(url);
  if (parsed.success) return parsed.data;
  throw new TrialgateError('bad_input', `--repository-base: ${parsed.error.issues[0]?.message}`);
}

/** Data sets write the `__` of an id otherwise in the names of their images: `{instance_id:_1776_}` does so. */
function imageOf({ image, docker_image, instance_id }: SweRow, wanted: string): string | null {
  if (wanted === 'none') return null;
  if (wanted === 'row') return docker_image ?? image ?? null;
  return wanted.replace(/\{instance_id(?::([^}]*))?\}/g, (_, between: string | undefined) =>
    instance_id.toLowerCase().replaceAll('__', between ?? '__'),
  );
}
