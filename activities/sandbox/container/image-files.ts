import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { extract, type Headers } from 'tar-fs';
import { TrialgateError } from '../../../core/errors.ts';
import { makeOnce } from '../../environments/make-once.ts';
import type { Image, PrepareOptions } from '../backend.ts';
import type { CopyLimits } from '../copy-files.ts';
import { hostWork } from '../errors.ts';
import { homeDigest } from '../names.ts';
import { walkFiles } from '../walk-files.ts';
import { answered, statusOf, type Engine } from './engine.ts';
import { LABELS, removed } from './run-container.ts';

/** More than any task's own limit of its disk is likely to be. */
const MOST: CopyLimits = { bytes: 10 * 2 ** 30, entries: 1_000_000 };

type Named = Pick<Image, 'id' | 'workdir'> & {
  /** For people. */
  name: string;
};

/** Returns the folder with a copy of what the image has in its work folder, which a mount would hide; null when that is empty. */
export async function filesOf(engine: Engine, image: Named, options: PrepareOptions): Promise<string | null> {
  const { home, signal, report = () => {} } = options;
  const digest = createHash('sha256').update(`${image.id} ${image.workdir}`).digest('hex').slice(0, 32);
  const what = `${image.workdir} of the image ${image.name}`;
  const lines = { before: `copying ${what} (once)`, after: `copied ${what}` };
  const folder = await makeOnce(join(home, 'images', digest), lines, { signal, report }, (draft, stopped) =>
    hostWork(what, () => copyOut(engine, image, home, draft, stopped)),
  );
  for await (const _ of walkFiles(folder)) return folder;
  return null;
}

async function copyOut(engine: Engine, image: Named, home: string, folder: string, signal: AbortSignal): Promise<void> {
  const container = await answered(
    engine.docker.createContainer({
      Image: image.id,
      Entrypoint: ['none'],
      Cmd: [],
      Labels: { [LABELS.home]: homeDigest(home), [LABELS.role]: 'image' },
    }),
    'opening an image',
  );
  try {
    signal.throwIfAborted();
    const archive = await answered(
      container.getArchive({ path: image.workdir }),
      `reading ${image.workdir} of an image`,
    ).catch((error: unknown) => {
      if (statusOf(error) === 404) return null;
      throw error;
    });
    if (archive) await unpack(archive, folder, image, signal);
  } finally {
    await removed(container);
  }
}

/**
 * Unpacks an archive of an image's work folder. Links are copied as they are and never followed; devices, pipes and sockets are left out.
 * @throws TrialgateError `bad_input` that names the image when it is too large, or its work folder is none
 */
export async function unpack(
  archive: NodeJS.ReadableStream,
  folder: string,
  { name, workdir }: Pick<Named, 'name' | 'workdir'>,
  signal: AbortSignal,
  most = MOST,
): Promise<void> {
  const refused = new AbortController();
  const refuse = (why: string): void => refused.abort(new TrialgateError('bad_input', `the image ${name}: ${why}`));
  const found: CopyLimits = { bytes: 0, entries: 0 };
  const map = (header: Headers & { linkname?: string | null }): Headers => {
    found.bytes += header.size;
    if (found.entries === 0 && header.type !== 'directory')
      refuse(`its WORKDIR ${workdir} is a link or a file: name the folder itself`);
    found.entries += 1;
    if (found.bytes > most.bytes || found.entries > most.entries)
      refuse(
        `its WORKDIR ${workdir} has more than ${most.bytes} bytes or ${most.entries} files: choose a smaller folder as WORKDIR`,
      );
    // The first folder of each name is the work folder itself. A hard link names its file in the same way; a symbolic link is only text.
    header.name = withoutFirst(header.name);
    if (header.type === 'link' && header.linkname) header.linkname = withoutFirst(header.linkname);
    return header;
  };
  // The types of tar-fs do not have `validateSymlinks`.
  const options = { map, ignore: () => refused.signal.aborted, strict: false, validateSymlinks: false, chown: false };
  try {
    const until = AbortSignal.any([signal, refused.signal]);
    const target = extract(folder, { ...options, dmode: 0o700, fmode: 0o600 });
    // When the whole ends early, the entry that is being read fails too, and tar-fs does not listen to each.
    target.prependListener('entry', (_header, entry) => void entry.on('error', () => {}));
    await pipeline(archive, target, { signal: until });
  } catch (error) {
    signal.throwIfAborted();
    refused.signal.throwIfAborted();
    throw error;
  }
  refused.signal.throwIfAborted();
}

const withoutFirst = (path: string): string => path.split('/').slice(1).join('/');
