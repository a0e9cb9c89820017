/** Begins a line that names an exception: `ValueError: …`, `openai.APIStatusError: …`, `Uncaught TypeError: …`. */
const EXCEPTION = /^(?:Uncaught )?(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt|Warning)\b/;
/** Lines that say nothing about a failure: frames of a stack, and the version that Node prints after it. */
const STACK = /^(?:\s+at |Node\.js v\d)/;
const MOST_LINES = 40;
const MOST_CHARACTERS = 300;

/**
 * Returns the line of a program's standard error that says why it failed: the last one that names an exception, else the last one. Frameworks
 * print notes below an exception (LangGraph: "During task with name …"), so the last line alone is often not the reason.
 */
export function errorLine(stderr: string): string {
  const lines = stderr.trimEnd().split('\n').slice(-MOST_LINES);
  const line =
    lines.findLast((each) => EXCEPTION.test(each)) ?? lines.findLast((each) => each.trim() && !STACK.test(each));
  const found = line?.trim() ?? '';
  return found.length > MOST_CHARACTERS ? `${found.slice(0, MOST_CHARACTERS)}…` : found;
}
