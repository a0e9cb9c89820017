/** The forms in which vLLM 0.32 reports a setting with which it can never start. The group is the sentence itself. */
const FAULTS = [
  // Its argument parser.
  /^api_server\.py: error: (.+)$/,
  // The check of its settings, such as a context that is longer than the model's. A hub that cannot be reached makes the excluded sentence too.
  /^ {2}Value error, (?!Invalid repository ID or local directory specified: '[^/])(.+?)(?: \[type=value_error.*)?$/,
  // The names of the parsers of tools and of reasoning.
  /^KeyError: ['"](invalid (?:tool call|reasoning) parser: .+)['"]$/,
  /^RuntimeError: (Cannot find any model weights with .+)$/,
];

/** Returns vLLM's own sentence on a wrong setting, from the log of a start that failed; null when another start may succeed. */
export function engineFault(log: readonly string[]): string | null {
  for (const line of log.toReversed())
    for (const form of FAULTS) {
      const sentence = form.exec(line)?.[1];
      if (sentence !== undefined) return sentence;
    }
  return null;
}
