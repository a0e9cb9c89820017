import { readdir } from 'node:fs/promises';
import { basename, join, posix } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { NEEDS_CONTAINER, NOT_POSSIBLE } from './needs-container.ts';
import { readInside } from './read-inside.ts';

/** The images that ask for no more than a sandbox has: a shell and Python, in this machine's versions. */
export const PLAIN_IMAGES = 'python, debian and ubuntu';
const PLAIN_IMAGE = /^(docker\.io\/)?(library\/)?(python|debian|ubuntu)(:[\w.-]+)?(@sha256:[0-9a-f]+)?$/;

export const isPlainImage = (image: string): boolean => PLAIN_IMAGE.test(image);

/** Files that only build an image and are not the task's content. */
export const IMAGE_FILES = ['Dockerfile', 'docker-compose.yaml', 'docker-compose.yml', '.dockerignore'];
const SERVICES = ['docker-compose.yaml', 'docker-compose.yml', 'singularity-compose.yaml'];

/**
 * Refuses a task whose folder describes services beside its sandbox.
 * @throws TrialgateError `bad_input` that names the file
 */
export async function requireNoServices(folder: string): Promise<void> {
  const names: string[] = await readdir(folder).catch(() => []);
  for (const name of SERVICES)
    if (names.includes(name))
      throw new TrialgateError(
        'bad_input',
        `${join(folder, name)}: the task wants services of its own: that ${NOT_POSSIBLE}`,
      );
}

/**
 * Refuses a folder whose Dockerfile gets not all of its files.
 * @throws TrialgateError `bad_input` that names the file
 */
export async function requireNoDockerignore(folder: string): Promise<void> {
  const names: string[] = await readdir(folder).catch(() => []);
  if (names.includes('Dockerfile') && names.includes('.dockerignore'))
    throw new TrialgateError(
      'bad_input',
      `${join(folder, '.dockerignore')}: it leaves files out, and a sandbox has all of ${basename(folder)}/: remove these files and the .dockerignore`,
    );
}

/** Instructions without an effect on what runs in a container of Harbor, which always starts its own command. */
const WITHOUT_EFFECT = ['LABEL', 'MAINTAINER', 'EXPOSE', 'CMD'];

const DELETE = '; if this machine has all that the task needs, delete the Dockerfile';

type Place = {
  /** The real path of the task's folder. */
  root: string;
  /** The folder within the task that has the Dockerfile and the files. */
  folder: 'environment' | 'tests';
  /** The folder in which a sandbox has these files. */
  inside: string;
};
type Instruction = { line: number; name: string; args: string };

/**
 * Refuses a folder that describes an image that a sandbox does not give. A Dockerfile is plain when it begins with a plain image, works in
 * /app, and copies all files of its folder to the place where the sandbox has them.
 * @throws TrialgateError `bad_input` that names the file and the line
 */
export async function requirePlainImage(place: Place): Promise<void> {
  const entries = await readdir(join(place.root, place.folder), { withFileTypes: true }).catch(() => []);
  const folder = join(place.root, place.folder);
  if (!entries.some(({ name }) => name === 'Dockerfile')) return;
  const files = new Map(
    entries.filter(({ name }) => !IMAGE_FILES.includes(name)).map((entry) => [entry.name, entry.isDirectory()]),
  );
  const { copied, workdir } = readPlain(await readInside(place.root, `${place.folder}/Dockerfile`), files, place);
  for (const name of files.keys())
    if (!copied.has(name))
      throw new TrialgateError(
        'bad_input',
        `${join(folder, 'Dockerfile')}: it does not copy ${name} to ${place.inside}/, where a sandbox has it: add \`COPY . ${place.inside}/\`, or remove the file`,
      );
  // The agent of another folder would leave its work where the tests do not look.
  if (place.folder === 'environment' && workdir === '/')
    throw new TrialgateError(
      'bad_input',
      `${join(folder, 'Dockerfile')}: it works in /, and the work folder of a sandbox is /app: add \`WORKDIR /app\` if the task means that folder`,
    );
}

type Plain = { /** The names that it copies to their places. */ copied: Set<string>; workdir: string };

/** Reads a Dockerfile that asks for no more than a sandbox has. */
function readPlain(text: string, files: ReadonlyMap<string, boolean>, { root, folder, inside }: Place): Plain {
  const file = join(root, folder, 'Dockerfile');
  const copied = new Set<string>();
  let workdir = '/';
  let images = 0;
  const instructions = instructionsOf(text);
  // Without these the Dockerfile only installs programs, which this machine may have.
  const isInstallation = !instructions.some(
    ({ name, args }) =>
      ['ENV', 'USER', 'VOLUME', 'ENTRYPOINT'].includes(name) ||
      (name === 'WORKDIR' && posix.resolve('/', args) !== '/app') ||
      (name === 'COPY' && namesCopied(args, files, { workdir: '/app', inside }) === null),
  );
  const advice = isInstallation ? DELETE : '';
  for (const { line, name, args } of instructions) {
    const refuse = (what: string, then = ''): never => {
      throw new TrialgateError('bad_input', `${file}:${line}: the task wants ${what}: that ${NEEDS_CONTAINER}${then}`);
    };
    if (name === 'FROM') {
      images += 1;
      if (!isPlainImage(imageOf(args)) || images > 1)
        refuse(`\`FROM ${args}\`, and a plain image is one of ${PLAIN_IMAGES}`, advice);
    } else if (name === 'WORKDIR') {
      workdir = posix.resolve(workdir, args);
      if (workdir !== '/app') refuse(`to work in ${workdir}, and the work folder of a sandbox is /app`);
    } else if (name === 'COPY') {
      const names = namesCopied(args, files, { workdir, inside });
      if (names === null) refuse(`\`COPY ${args}\`, and a sandbox has each file of ${folder}/ as ${inside}/NAME`);
      for (const each of names ?? []) copied.add(each);
    } else if (!WITHOUT_EFFECT.includes(name))
      refuse(
        `\`${shortened(`${name} ${args}`)}\` in an image of its own`,
        name === 'ENV' ? '; `[environment] env` of task.toml sets variables without it' : advice,
      );
  }
  return { copied, workdir };
}

/** Returns the image of a FROM, without the platform and without the name of the stage. */
const imageOf = (args: string): string => args.replace(/^--platform=\S+\s+/, '').replace(/\s+as\s+\S+$/i, '');

/** Returns the names that a COPY brings to their places, or null if it does anything else. */
function namesCopied(
  args: string,
  files: ReadonlyMap<string, boolean>,
  { workdir, inside }: { workdir: string; inside: string },
): string[] | null {
  const words = args.split(/\s+/);
  const to = words.at(-1) ?? '';
  const target = posix.resolve(workdir, to);
  const sources = words.slice(0, -1).map((source) => posix.normalize(source).replace(/\/$/, ''));
  const isInto = target === inside && (to.endsWith('/') || workdir === inside);
  const names = sources.flatMap((source) => {
    if (source === '.') return target === inside ? [...files.keys()] : [null];
    const isFolder = files.get(source);
    const isRight = (isInto && isFolder === false) || (sources.length === 1 && target === `${inside}/${source}`);
    return isFolder !== undefined && isRight ? [source] : [null];
  });
  return sources.length > 0 && names.every((name) => name !== null) ? names : null;
}

function instructionOf({ line, text }: { line: number; text: string }): Instruction {
  const [name = '', ...words] = text.trim().split(/\s+/);
  return { line, name: name.toUpperCase(), args: words.join(' ') };
}

function instructionsOf(text: string): Instruction[] {
  const found: Instruction[] = [];
  let begun: { line: number; text: string } | null = null;
  for (const [index, raw] of text.split('\n').entries()) {
    const part = raw.trim();
    if (part === '' || part.startsWith('#')) continue;
    begun ??= { line: index + 1, text: '' };
    begun.text += part.endsWith('\\') ? `${part.slice(0, -1)} ` : part;
    if (part.endsWith('\\')) continue;
    found.push(instructionOf(begun));
    begun = null;
  }
  // A backslash in the last line has nothing to join.
  return begun === null ? found : [...found, instructionOf(begun)];
}

const shortened = (text: string): string => (text.length > 80 ? `${text.slice(0, 80)}…` : text);
