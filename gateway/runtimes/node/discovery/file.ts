import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { sleep } from '../../../../core/sleep.ts';
import { validateFile } from '../../../../core/validate-file.ts';
import type { FoundEngine } from '../../../../store/queries/register-replicas.ts';
import { ENGINE_URL, ENGINE_URL_FORMS } from '../../../engines/url-forms.ts';
import { messageOf, type Discovery, type Finding } from './discovery.ts';

const POLL_MS = 500;

/** Finds the engines that a file lists, and reads the file again all the time. */
export const file: Discovery = {
  foundBy: 'file',
  watch: ({ enginesFile }, signal) => (enginesFile === undefined ? null : watchFile(enginesFile, signal)),
};

async function* watchFile(path: string, signal: AbortSignal): AsyncGenerator<Finding> {
  for await (const content of settled(contentsOf(path, signal)))
    yield 'text' in content ? await findIn(content.text, path) : content;
}

type Content = { text: string } | { failure: string };

/**
 * Reads the content again and again, and does not ask the file system for changes: that misses a link whose target was swapped, as in a
 * ConfigMap, and what happens on file systems of a network.
 */
async function* contentsOf(path: string, signal: AbortSignal): AsyncGenerator<Content> {
  for (; ; await sleep(POLL_MS, signal)) {
    yield await readFile(path, 'utf8').then(
      (text) => ({ text }),
      (error: unknown) => ({ failure: `${path} cannot be read: ${messageOf(error)}` }),
    );
  }
}

/** Yields what two reads in a row found, whenever that is something new: at a single read a writer may be in the middle of the file. */
export async function* settled(contents: AsyncIterable<Content>): AsyncGenerator<Content> {
  let last: string | null = null;
  let yielded: string | null = null;
  for await (const content of contents) {
    const now = JSON.stringify(content);
    if (now === last && now !== yielded) {
      yielded = now;
      yield content;
    }
    last = now;
  }
}

/** Returns the engines that the text of a file lists. */
export async function findIn(text: string, path: string): Promise<Finding> {
  try {
    return { engines: validateFile(engineFile, await parse(text, path), path) };
  } catch (error) {
    return { failure: messageOf(error) };
  }
}

/** YAML includes JSON. */
async function parse(text: string, path: string): Promise<unknown> {
  const { parse: parseYaml } = await import('yaml');
  try {
    return parseYaml(text, { prettyErrors: true });
  } catch (error) {
    throw new Error(`${path} is neither JSON nor YAML: ${messageOf(error).split('\n')[0]}`, { cause: error });
  }
}

const url = z
  .string('expected the URL of an engine')
  .regex(ENGINE_URL, `expected ${ENGINE_URL_FORMS}`)
  .refine((text) => !/[\p{Cc}]/u.test(text), 'expected an engine, without control characters')
  .transform((text) => text.replace(/\/+$/, ''));

const engineFile = z
  .array(
    z.union([
      url.transform((text): FoundEngine => ({ url: text, draining: false })),
      z
        .strictObject({ url, drain: z.boolean('expected true or false').default(false) })
        .transform(({ url: text, drain }): FoundEngine => ({ url: text, draining: drain })),
    ]),
    'expected a list of engines, such as `- http://host:port`',
  )
  .superRefine((engines, context) => {
    const urls = engines.map((engine) => engine.url);
    for (const [index, each] of urls.entries())
      if (urls.indexOf(each) < index)
        context.addIssue({ code: 'custom', path: [index], message: `names ${each} a second time` });
  });
