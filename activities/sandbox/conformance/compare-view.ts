import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import type { Command, SandboxBackend } from '../backend.ts';
import type { Mount } from '../bubblewrap.ts';
import type { Sandbox } from '../empty-sandbox.ts';
import type { View } from '../view.ts';

type SeenMount = { root: string; inside: string; isWritable: boolean };

/** Runs `cat` in place of a command, and returns every difference between what it sees and what the kind says that the command sees. */
export async function compareView(backend: SandboxBackend, sandbox: Sandbox, command: Command): Promise<string[]> {
  const view = await backend.explain(sandbox, command);
  // The environment ends with a zero byte.
  const argv = ['cat', '/proc/self/environ', '/proc/self/mountinfo'];
  const { forkServer: _, ...cold } = command;
  const { stdout, stderr } = await backend.run(sandbox, { ...cold, argv });
  const end = stdout.lastIndexOf('\0');
  if (end === -1) return [`cat printed no environment: ${stderr}`];
  return [
    ...differencesOfEnv(variablesIn(stdout.slice(0, end)), view),
    ...differencesOfMounts(mountsOf(stdout.slice(end + 1)), view),
  ];
}

/** Some shells set these for what they start. */
const OF_SHELLS = new Set(['SHLVL', 'OLDPWD', '_']);

function differencesOfEnv(env: Record<string, string>, view: View): string[] {
  const names = new Set([...Object.keys(env), ...Object.keys(view.env)]);
  return [...names].flatMap((name) => {
    if (OF_SHELLS.has(name)) return [];
    const [seen, said] = [env[name], view.env[name]];
    const isMadeUp = said?.startsWith('<') && seen !== undefined;
    return seen === said || isMadeUp ? [] : [`${name} is ${seen ?? 'not set'}, and not ${said ?? 'unset'}`];
  });
}

function differencesOfMounts(seen: SeenMount[], view: View): string[] {
  const host = mountsOf(readFileSync('/proc/self/mountinfo', 'utf8'));
  const missing = view.mounts.flatMap((said) => {
    const mount = seen.findLast(({ inside }) => inside === said.inside);
    return mount === undefined ? [`${said.inside} is not mounted`] : differencesOf(mount, said, host);
  });
  const isSaid = ({ inside }: SeenMount): boolean =>
    view.mounts.some((said) => said.inside === inside) ||
    view.own.some((own) => own.inside === inside || (own.inside !== '/' && inside.startsWith(`${own.inside}/`)));
  return [...missing, ...seen.filter((each) => !isSaid(each)).map(({ inside }) => `${inside} is mounted too`)];
}

function differencesOf({ root, inside, isWritable }: SeenMount, said: Mount, host: SeenMount[]): string[] {
  const expected = placeOf(resolved(said.host), host);
  // An engine may have a disk of its own at a place of the system, as the podman of the tests has at /usr.
  const isOfEngine =
    !said.writable && ((root === '/' && said.host === said.inside) || join('/usr', root) === said.host);
  return [
    ...(root === expected || isOfEngine ? [] : [`${inside} is ${root} of its disk, and not ${expected}`]),
    ...(isWritable === said.writable ? [] : [`${inside} is ${isWritable ? 'writable' : 'read-only'}`]),
  ];
}

/** The socket to the gateway is gone when the process has ended, and its folder is there. */
const resolved = (path: string): string =>
  existsSync(path) ? realpathSync(path) : join(realpathSync(dirname(path)), basename(path));

/** Returns a path's place on its own disk, as the kernel names it in a list of mounts. */
function placeOf(path: string, mounts: SeenMount[]): string {
  const isAbove = ({ inside }: SeenMount): boolean =>
    inside === '/' || path === inside || path.startsWith(`${inside}/`);
  // A later mount covers an earlier one.
  const mount = mounts
    .filter(isAbove)
    .reduce<SeenMount | null>((best, each) => (each.inside.length >= (best?.inside.length ?? 0) ? each : best), null);
  return mount === null ? path : join(mount.root, relative(mount.inside, path));
}

function mountsOf(text: string): SeenMount[] {
  return text
    .trim()
    .split('\n')
    .map((line) => {
      const [, , , root = '', inside = '', options = ''] = line.split(' ');
      return { root: unescaped(root), inside: unescaped(inside), isWritable: options.split(',').includes('rw') };
    });
}

/** The kernel writes a space of a path as `\040`. */
const unescaped = (path: string): string =>
  path.replace(/\\(\d{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));

/** Returns the variables of an environment as the kernel shows it: each ends with a zero byte. */
export const variablesIn = (environ: string): Record<string, string> =>
  Object.fromEntries(
    environ
      .split('\0')
      .filter((each) => each !== '')
      .map(variable),
  );

function variable(text: string): [string, string] {
  const at = text.indexOf('=');
  return [text.slice(0, at), text.slice(at + 1)];
}
