import { randomBytes } from 'node:crypto';
import { SOLUTIONS } from '../../tasks/solutions.ts';

/** The mark of every reply: right or wrong, and a serial number. */
const MARK = /# (right|wrong) ([0-9a-f]{16})/;
export type Mark = { right: boolean; serial: string };

export function markOf(text: string): Mark | null {
  const [, word, serial] = MARK.exec(text) ?? [];
  return serial === undefined ? null : { right: word === 'right', serial };
}

/** Returns a reply that solves a bundled task or not, by chance. To anything else it returns a reply that solves nothing. */
export function answerTo(messages: readonly { content?: unknown }[]): string {
  const name = /Write a Python function `(\w+)\(/.exec(String(messages[0]?.content))?.[1];
  const solution = SOLUTIONS[name?.replaceAll('_', '-') ?? ''];
  const right = solution !== undefined && Math.random() < 0.6;
  const mark = `# ${right ? 'right' : 'wrong'} ${randomBytes(8).toString('hex')}`;
  return `\`\`\`python\n${mark}\n${right ? solution : `def ${name ?? 'nothing'}(*_): return None`}\n\`\`\``;
}
