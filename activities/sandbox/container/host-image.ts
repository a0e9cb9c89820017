import { createHash } from 'node:crypto';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pack } from 'tar-fs';
import { z } from 'zod';
import { ETC, SYSTEM, type Mount } from '../bubblewrap.ts';
import { SandboxError } from '../errors.ts';
import type { Python } from '../sandbox-python.ts';
import { answered, statusOf, type Engine } from './engine.ts';

/** An image without any file. Its containers see this host's programs by mounts. */
const IMAGE = 'localhost/trialgate-host';
const FOLDERS = ['usr', 'etc', 'proc', 'sys', 'dev', 'tmp', 'run', 'app', 'logs', 'tests', 'home/agent'];

/** The image's name for each engine that this process has used. */
const made = new WeakMap<Engine['docker'], Promise<string>>();

/** Returns the name of the image, which is made where the engine does not have it. */
export function hostImage(engine: Engine): Promise<string> {
  const before = made.get(engine.docker);
  if (before) return before;
  const making = makeImage(engine).catch((error: unknown) => {
    forgetHostImage(engine);
    throw error;
  });
  made.set(engine.docker, making);
  return making;
}

/** The next `hostImage` looks whether the engine still has the image. */
export const forgetHostImage = ({ docker }: Engine): void => void made.delete(docker);

async function makeImage({ docker }: Engine): Promise<string> {
  const links = SYSTEM.filter((path) => lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink());
  const targets = links.map((path) => [path, readlinkSync(path)]);
  const present = SYSTEM.filter((path) => lstatSync(path, { throwIfNoEntry: false }));
  // An image with other files has another tag, so that no release uses the image of an earlier one.
  const tag = createHash('sha256')
    .update(JSON.stringify([FOLDERS, targets, present]))
    .digest('hex')
    .slice(0, 16);
  const name = `${IMAGE}:${tag}`;
  const isThere = await answered(docker.getImage(name).inspect(), `looking for ${name}`).then(
    () => true,
    (error: unknown) => {
      if (statusOf(error) === 404) return false;
      throw error;
    },
  );
  if (isThere) return name;
  const folder = mkdtempSync(join(tmpdir(), 'trialgate-image-'));
  try {
    for (const each of FOLDERS) mkdirSync(join(folder, each), { recursive: true });
    for (const path of SYSTEM) {
      if (links.includes(path)) symlinkSync(readlinkSync(path), join(folder, path));
      else if (lstatSync(path, { throwIfNoEntry: false })) mkdirSync(join(folder, path), { recursive: true });
    }
    const reply = await answered(docker.importImage(Readable.from(pack(folder))), 'making an empty image');
    const id = importedId(await textOf(reply));
    await answered(docker.getImage(id).tag({ repo: IMAGE, tag }), `naming the image ${name}`);
    return name;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const imported = z.object({ status: z.string().regex(/^(sha256:)?[0-9a-f]{12,64}$/) });

/** Returns the id of the image from the last line of the engine's reply to an import. */
function importedId(reply: string): string {
  try {
    return imported.parse(JSON.parse(reply.trim().split('\n').at(-1) ?? '')).status;
  } catch (error) {
    throw new SandboxError(`the container engine did not import an empty image, but replied: ${reply.slice(0, 500)}`, {
      cause: error,
    });
  }
}

/** The engines write these for each container. */
const OF_ENGINE = ['/etc/hosts', '/etc/resolv.conf'];

/** The mounts by which a container has the programs of this host, as under bubblewrap. */
export function hostMounts({ prefix }: Python): Mount[] {
  const folders = SYSTEM.filter((path) => lstatSync(path, { throwIfNoEntry: false })?.isDirectory());
  const files = ETC.filter((path) => !OF_ENGINE.includes(path) && existsSync(path));
  return [...folders, ...files, ...(prefix === null ? [] : [prefix])].map((path) => ({
    // Some are links, such as /etc/localtime.
    host: realpathSync(path),
    inside: path,
    writable: false,
  }));
}

export async function textOf(stream: NodeJS.ReadableStream): Promise<string> {
  let text = '';
  for await (const chunk of stream) text += chunk.toString();
  return text;
}
