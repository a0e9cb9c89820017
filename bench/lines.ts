/**
 * Counts the lines that a user writes for GSM8K with a Python reward, and for a LangGraph agent: in examples/, and in the examples of other
 * projects at a fixed commit (bench/lines/examples.ts). A line counts if it is neither blank nor a comment or a docstring. Commands that
 * are typed, and data, do not count. `--from` names the host of the files, or a folder that has them: OWNER/NAME/COMMIT/PATH.
 *
 *   node bench/lines.ts
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { TrialgateError } from '../core/errors.ts';
import { REPOSITORY } from '../core/repository.ts';
import { table } from '../cli/show/table.ts';
import { provenance } from './deployment.ts';
import { countLines, blocksOf } from './lines/count-lines.ts';
import { GSM8K, LANGGRAPH, NONE, type Example, type Written } from './lines/examples.ts';
import { optionsOf } from './options.ts';

const { from } = optionsOf(import.meta.url, { from: 'https://raw.githubusercontent.com' });

async function read({ repository, commit }: Example, { path }: Written): Promise<string> {
  if (repository === null) return readFile(join(REPOSITORY, path), 'utf8');
  const place = `${from}/${repository}/${commit}/${path}`;
  if (!/^https?:/.test(from)) return readFile(place, 'utf8');
  const reply = await fetch(place, { signal: AbortSignal.timeout(30_000) });
  if (!reply.ok) throw new TrialgateError('missing_prerequisite', `${place} answered ${reply.status}`);
  return reply.text();
}

type Counted = { path: string; lines: number; isCode: boolean };

async function count(example: Example): Promise<Counted[]> {
  return Promise.all(
    example.written.map(async (written) => {
      const { path, section } = written;
      const text = await read(example, written);
      const isCode = section === undefined ? path.endsWith('.py') : section.language === 'python';
      const lines = countLines(section ? blocksOf(text, section.heading, section.language) : text, isCode);
      if (lines === 0)
        throw new TrialgateError('bad_input', `nothing to count in ${path}: correct bench/lines/examples.ts`);
      return { path, lines, isCode };
    }),
  );
}

const sum = (counted: readonly Counted[]): number => counted.reduce((all, { lines }) => all + lines, 0);

const linkOf = ({ repository, commit }: Example, path: string): string =>
  repository === null ? path : `https://github.com/${repository}/blob/${commit}/${path}`;

console.log(JSON.stringify(provenance(), null, 2));
for (const [title, examples] of Object.entries({
  'GSM8K with a Python reward': GSM8K,
  'a LangGraph agent': LANGGRAPH,
})) {
  const all = await Promise.all(examples.map(async (example) => ({ example, counted: await count(example) })));
  const totals = all.map(({ example: { project, example }, counted }) => [
    project,
    String(sum(counted)),
    String(sum(counted.filter(({ isCode }) => isCode))),
    String(sum(counted.filter(({ isCode }) => !isCode))),
    example,
  ]);
  console.log(`\n${title}\n\n${table(['project', 'lines', 'code', 'settings', 'example'], totals)}\n`);
  for (const { example, counted } of all)
    for (const { path, lines } of counted) console.log(`${String(lines).padStart(4)}  ${linkOf(example, path)}`);
}
console.log(`\n${NONE.join('\n')}`);
