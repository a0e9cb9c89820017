import { CommanderError, type Command } from 'commander';
import { program } from '../main.ts';

/** A command of ours in a document. One in a sentence may leave out what follows. */
export type DocumentedCommand = { words: string[]; isWhole: boolean };

const BLOCK = /^( *)(```+|~~~+).*\n([^]*?)^ *\2 *$/gm;
const INDENTED = /^ {4}npx trialgate.*$/gm;
const SPAN = /`([^`\n]+)`/g;
const VERBS = new Set(program().commands.map((verb) => verb.name()));

/** Returns each `npx trialgate …` of a Markdown document, and what its sentences write without these words, such as `show RUN --json`. */
export function commandsIn(markdown: string): DocumentedCommand[] {
  const sentences = markdown.replaceAll(BLOCK, '');
  const blocks = [
    ...[...markdown.matchAll(BLOCK)].map(([, , , block = '']) => block),
    ...(sentences.match(INDENTED) ?? []),
  ];
  const lines = blocks.flatMap((block) => block.replaceAll(/\\\n\s*/g, '').split('\n'));
  const spans = [...sentences.matchAll(SPAN)].map(([, span = '']) => span);
  return [
    ...lines.flatMap(commandsOfShell).map((words) => ({ words, isWhole: true })),
    ...spans
      .flatMap((span) => [...commandsOfShell(span), ...shortForm(span)])
      .map((words) => ({ words, isWhole: false })),
  ];
}

const commandsOfShell = (line: string): string[][] =>
  (line.split(/(?:^|\s)#/, 1)[0] ?? '').split('npx trialgate').slice(1).map(wordsOf);

/** A span with a verb alone may be a word of something else. With an option it is a command, of ours or of Temporal's CLI. */
function shortForm(span: string): string[][] {
  if (/ --(?:workflow|schedule)-id /.test(span)) return [];
  const words = wordsOf(span.replace(/^trialgate /, ''));
  return VERBS.has(words[0] ?? '') && words.some((word) => word.startsWith('--')) ? [words] : [];
}

/** Returns the words of a command without quotes, up to its end. What a sentence leaves open (`…`) is no word. */
function wordsOf(command: string): string[] {
  const words = [...command.matchAll(/(?:'[^']*'|"[^"]*"|[^\s'"])+/g)].map(([word]) => word.replaceAll(/['"]/g, ''));
  const end = words.findIndex((word) => /^(?:\||\|\||&&|;|\d?>.*)$/.test(word));
  return words.slice(0, end < 0 ? undefined : end).filter((word) => word !== '…');
}

const HELP = ['commander.help', 'commander.helpDisplayed'];
const UNKNOWN = ['commander.unknownCommand', 'commander.unknownOption', 'commander.excessArguments'];

/** Returns what the parser of the command line says against a command, or null. Nothing is run. */
export function faultIn({ words, isWhole }: DocumentedCommand): string | null {
  try {
    parser().parse(words, { from: 'user' });
    return null;
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    const isFault = isWhole ? !HELP.includes(error.code) : UNKNOWN.includes(error.code);
    return isFault ? `npx trialgate ${words.join(' ')}: ${error.message}` : null;
  }
}

/** Returns the command line's own parser, whose verbs do nothing. */
function parser(): Command {
  const root = program();
  const silence = (command: Command): void => {
    command.configureOutput({ writeOut: () => {}, writeErr: () => {} });
    for (const verb of command.commands) silence(verb.action(() => {}));
  };
  silence(root);
  return root;
}
