import { createHash, randomUUID } from 'node:crypto';
import { mkdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { TrialgateError } from '../../core/errors.ts';
import type { RowsSource } from '../../core/run-config/task-source.ts';

/** The hub's list of the Parquet files of a dataset: subset → split → URLs (https://huggingface.co/docs/dataset-viewer/parquet). */
const parquetFiles = z.record(z.string(), z.record(z.string(), z.array(z.string())));

/**
 * Downloads the Parquet files of a split, each once and when it is asked for, and yields their paths. `HF_ENDPOINT` names another hub, and `HF_TOKEN` a token, as for
 * Hugging Face's own tools.
 * @throws TrialgateError `bad_input` that says which subsets and splits there are; Error when the hub is away, which may pass
 */
export async function* downloadDataset({ rows, name, split }: RowsSource, cache: string): AsyncGenerator<string> {
  const hub = process.env.HF_ENDPOINT ?? 'https://huggingface.co';
  const files = parquetFiles.safeParse(await getJson(`${hub}/api/datasets/${rows}/parquet`, rows));
  if (!files.success)
    throw new TrialgateError('bad_input', `tasks: ${hub} has no Parquet files of the dataset ${rows}`);
  const subsets = Object.keys(files.data);
  const subset = name ?? (subsets.length === 1 ? subsets[0] : 'default');
  const splits = files.data[subset ?? ''];
  if (!splits)
    throw new TrialgateError('bad_input', `tasks: ${rows} has the subsets ${subsets.join(', ')}: say \`name:\``);
  const urls = splits[split];
  if (!urls)
    throw new TrialgateError(
      'bad_input',
      `tasks: ${rows} has no split ${split}: there are ${Object.keys(splits).join(', ')}`,
    );
  for (const url of urls) yield await download(url, join(cache, 'datasets'));
}

async function download(url: string, folder: string): Promise<string> {
  const file = join(folder, `${createHash('sha256').update(url).digest('hex').slice(0, 32)}.parquet`);
  if (await stat(file).catch(() => null)) return file;
  await mkdir(folder, { recursive: true });
  const { body } = await get(url);
  if (!body) throw new TrialgateError('bad_input', `tasks: ${url} is empty`);
  const partial = `${file}.${randomUUID().slice(0, 8)}.partial`;
  try {
    await writeFile(partial, body);
    await rename(partial, file);
  } finally {
    await rm(partial, { force: true });
  }
  return file;
}

async function getJson(url: string, dataset: string): Promise<unknown> {
  const reply = await get(url);
  return reply.json().catch((cause: unknown) => {
    throw new TrialgateError('bad_input', `tasks: ${url} has no list of the files of ${dataset}`, { cause });
  });
}

async function get(url: string): Promise<Response> {
  const token = process.env.HF_TOKEN;
  const headers = token ? { authorization: `Bearer ${token}` } : undefined;
  const reply = await fetch(url, { headers }).catch((cause: unknown) => {
    const why = cause instanceof Error && cause.cause instanceof Error ? cause.cause.message : String(cause);
    throw new Error(`tasks: ${url} cannot be reached: ${why}`, { cause });
  });
  if (reply.ok) return reply;
  // Only this failure may pass by itself, so only this one is repeated.
  if (reply.status >= 500 || reply.status === 429) throw new Error(`tasks: ${url} answered ${reply.status}`);
  const advice = reply.status === 401 || reply.status === 404 ? '; check the name, or set HF_TOKEN' : '';
  throw new TrialgateError('bad_input', `tasks: ${url} answered ${reply.status}${advice}`);
}
