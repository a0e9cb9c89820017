import { readdir } from 'node:fs/promises';
import { basename, dirname, extname, join, parse } from 'node:path';
import { nearest } from './nearest.ts';

/** The endings of files that hold settings. */
const SETTINGS = ['.yaml', '.yml', '.json'];

/** Returns what is beside a path that is not there and was probably meant: a like name, or the same name with an ending. Null: nothing is. */
export async function nearestPath(path: string): Promise<string | null> {
  const folder = dirname(path);
  const name = basename(path);
  const beside = (await readdir(folder).catch(() => [])).filter((each) => each !== name);
  const withEnding = beside.find((each) => parse(each).name === name && SETTINGS.includes(extname(each)));
  const like = withEnding ?? nearest(name, beside);
  return like === null ? null : join(folder, like);
}

/** Returns `. Did you mean PATH?` for a path that is not there, or nothing if nothing beside it has a name like this. */
export async function meantPath(path: string): Promise<string> {
  const like = await nearestPath(path);
  return like === null ? '' : `. Did you mean ${like}?`;
}
